// Command countersign-provider-citadel is the provider for istiod's CA, and for
// istio-csr, which speaks the same. README.md has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/citadel/citadelca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(_ context.Context, settings citadelca.Settings) (*citadelca.CA, error) {
	settings.Log = slog.Default()
	return citadelca.Open(settings)
}

func main() { provider.Main("citadel", "", open) }
