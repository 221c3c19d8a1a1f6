// Command countersign-provider-google is the provider for Google's Certificate
// Authority Service, and for servers that speak Mesh CA's protocol. README.md has
// its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/google/googleca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(ctx context.Context, settings googleca.Settings) (*googleca.CA, error) {
	settings.Log = slog.Default()
	return googleca.Open(ctx, settings)
}

func main() { provider.Main("google", "", open) }
