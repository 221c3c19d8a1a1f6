// Command countersign-provider-aws is the provider for AWS Private CA. README.md has its
// settings.
package main

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/providers/aws/awspca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func open(ctx context.Context, settings awspca.Settings) (*awspca.CA, error) {
	settings.Log = slog.Default()
	return awspca.Open(ctx, settings)
}

func main() { provider.Main("aws", "", open) }
