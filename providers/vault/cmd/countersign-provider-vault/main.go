// Command countersign-provider-vault is the provider for the PKI engine of HashiCorp
// Vault and OpenBao. README.md has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/vault/vaultca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// version is set by the linker for a release.
var version = "0.1.0-dev"

func open(_ context.Context, settings vaultca.Settings) (*vaultca.CA, error) {
	settings.Log = slog.Default()
	return vaultca.Open(settings)
}

func main() { provider.Main("vault", version, open) }
