// Command countersign-provider-kubernetes is the provider for the signers of Kubernetes and the
// issuers of cert-manager. README.md has its settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/kubernetes/kubeca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(_ context.Context, settings kubeca.Settings) (*kubeca.CA, error) {
	settings.Log = slog.Default()
	return kubeca.Open(settings)
}

func main() { provider.Main("kubernetes", "", open) }
