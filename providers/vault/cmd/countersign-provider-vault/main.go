// Command countersign-provider-vault is the provider for the PKI engine of HashiCorp
// Vault and OpenBao. README.md has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/vault/vaultca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(_ context.Context, settings vaultca.Settings) (*vaultca.CA, error) {
	settings.Log = slog.Default()
	return vaultca.Open(settings)
}

func main() { provider.Main("vault", "", open) }
