// Command countersign-provider-step is the provider for smallstep's step-ca. README.md
// has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/step/stepca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(ctx context.Context, settings stepca.Settings) (*stepca.CA, error) {
	settings.Log = slog.Default()
	return stepca.Open(ctx, settings)
}

func main() { provider.Main("step", "", open) }
