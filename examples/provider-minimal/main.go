// Command provider-minimal is the smallest provider there is: replace the body of
// CSRSign by a call of your CA. Build it as countersign-provider-minimal.
package main

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/provider"
)

type settings struct {
	Address string `json:"address" jsonschema:"where the CA is, as in ca.example.org:443"`
}

type acme struct{ address string }

func open(_ context.Context, s settings) (acme, error) { return acme{s.Address}, nil }

func (a acme) CSRSign(_ context.Context, req provider.SignRequest) (provider.Certificate, error) {
	return provider.Certificate{}, provider.Errorf(provider.Unavailable, "nobody signs %s at %q yet", req.SubjectID, a.address)
}

func main() { provider.Main("minimal", "0.1.0", open) }
