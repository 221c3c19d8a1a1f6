// Command countersign-provider-acme is the provider for CAs that speak ACME. README.md has
// its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/acme/acmeca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(_ context.Context, settings acmeca.Settings) (*acmeca.CA, error) {
	settings.Log = slog.Default()
	return acmeca.Open(settings)
}

func main() {
	provider.Define("acme", "", open).WithFacts(provider.Facts{FixedLifetime: true}).Serve() // the CA decides
}
