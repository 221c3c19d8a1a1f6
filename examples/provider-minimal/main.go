// Command provider-minimal is the smallest possible provider: replace the CA in memory with a
// call to yours. Build it as countersign-provider-minimal.
package main

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
)

type settings struct {
	Address string `json:"address" jsonschema:"host:port of the CA" default:"ca.example.org:443"`
}

type acme struct{ ca *catest.CA }

func open(context.Context, settings) (acme, error) { return acme{catest.NewCA(catest.Options{})}, nil }

func (a acme) CSRSign(ctx context.Context, req provider.SignRequest) (provider.Certificate, error) {
	return a.ca.CSRSign(ctx, req)
}

func main() { provider.Main("minimal", "0.1.0", open) }
