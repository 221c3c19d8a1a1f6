// Command countersign-provider-citadel is the provider for istiod's CA, and for
// istio-csr, which speaks the same. README.md has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/citadel/citadelca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// version is set by the linker for a release.
var version = "0.1.0-dev"

func open(_ context.Context, settings citadelca.Settings) (*citadelca.CA, error) {
	settings.Log = slog.Default()
	return citadelca.Open(settings)
}

func main() { provider.Main("citadel", version, open) }
