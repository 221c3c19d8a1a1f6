package vaultca

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func TestSettingsMatchREADME(t *testing.T) {
	vault := provider.Define("vault", "", func(_ context.Context, s Settings) (*CA, error) { return Open(s) })
	settings := map[string]any{
		"url": "https://vault.example.org:8200", "root_file": "/etc/countersign/vault-root.pem", "role": "web",
		"login": map[string]any{"method": "approle", "role_id": "7c1b6f3e", "secret_id_file": "/etc/countersign/vault-secret-id"},
	}
	client, err := vault.Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := client.(ca.RootSource); !ok {
		t.Error("it returns no roots")
	}
	if closer, ok := client.(io.Closer); !ok || closer.Close() != nil {
		t.Error("its sessions cannot be ended")
	}
	settings["rolle"] = "web"
	if _, err := vault.Open(t.Context(), settings); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "rolle") {
		t.Errorf("an unknown setting: %v", err)
	}
}
