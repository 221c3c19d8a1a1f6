// Command countersign-provider-est is the provider for servers of EST (RFC 7030). README.md
// has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/est/estca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(_ context.Context, settings estca.Settings) (*estca.CA, error) {
	settings.Log = slog.Default()
	return estca.Open(settings)
}

func main() {
	provider.Define("est", "", open).WithFacts(provider.Facts{FixedLifetime: true}).Serve() // the CA decides
}
