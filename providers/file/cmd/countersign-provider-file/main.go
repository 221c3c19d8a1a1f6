// Command countersign-provider-file is the provider for a certificate authority
// whose certificate and key are files. README.md has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(ctx context.Context, settings fileca.Settings) (*fileca.CA, error) {
	settings.Log = slog.Default()
	return fileca.Open(ctx, settings)
}

func main() { provider.Main("file", "", open) }
