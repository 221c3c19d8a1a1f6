package fileca

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// startProcess starts the binary by a stock go-plugin host.
func startProcess(t *testing.T) *wire.Remote {
	t.Helper()
	return testkit.Start(t, exec.Command(testkit.Program(t, "countersign-provider-file")), io.Discard) //nolint:gosec // built by the tests
}

func TestProcessSignsAndReportsRoots(t *testing.T) {
	remote := startProcess(t) // it may build the program
	ctx := testkit.Within(t, time.Minute)
	metadata, err := remote.Metadata(ctx)
	able := []wire.Ability{wire.CertificateAuthority, wire.RootSource, wire.RootWatcher, wire.NamesFromRequest, wire.RevocationSource, wire.JWTSVID, wire.WITSVID}
	if err != nil || metadata.Name != "file" || !slices.Equal(metadata.Abilities, able) {
		t.Errorf("%v, %v", metadata, err)
	}
	for _, setting := range []string{`"dir"`, `"self_signed"`, `"key_type"`, `"max_ttl"`, `"trust_domain"`, `"poll_interval"`} {
		if !strings.Contains(metadata.SettingsSchema, setting) || strings.Contains(metadata.SettingsSchema, "Log") {
			t.Errorf("the schema lacks %s or has the log: %s", setting, metadata.SettingsSchema)
		}
	}
	dir := filepath.Join(t.TempDir(), "ca")
	mustRefuse(ctx, t, remote, dir)
	if err := remote.Configure(ctx, map[string]any{"dir": dir, "self_signed": true, "max_ttl": "1h"}); err != nil {
		t.Fatal(err)
	}
	if err := conformance.NewSession(conformance.Kit{}, conformance.Subject{}).SignOnce(ctx, remote); err != nil {
		t.Error(err)
	}
}

// mustRefuse demands that wrong settings are refused with what is wrong.
func mustRefuse(ctx context.Context, t *testing.T, remote *wire.Remote, dir string) {
	t.Helper()
	for says, settings := range map[string]map[string]any{
		"dir is not set":           {},
		`max_ttl is "soon"`:        {"dir": dir, "max_ttl": "soon"},
		"max_ttl is a number":      {"dir": dir, "max_ttl": 24},
		"did you mean self_signed": {"dir": dir, "self_singed": true},
	} {
		if err := remote.Configure(ctx, settings); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", settings, err, says)
		}
	}
}

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	dir := filepath.Join(t.TempDir(), "ca")
	conformance.Run(t, conformance.Kit{
		Settings:        map[string]any{"dir": dir, "self_signed": true, "trust_domain": "example.org"},
		WrongSettings:   map[string]any{"dir": dir, "max_ttl": "soon"},
		Identity:        conformance.Names{SPIFFEID: "spiffe://example.org/ns/shop/sa/web", DNSNames: []string{"web.shop.svc", "www.shop.svc"}, IPAddresses: []string{"192.0.2.7"}},
		RefusedIdentity: conformance.Names{SPIFFEID: "spiffe://stranger.test/web"},
	}, provider.Define("file", "", Open).Provider)
}
