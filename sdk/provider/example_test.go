package provider_test

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/provider"
)

type acmeSettings struct {
	Address string `json:"address" jsonschema:"where the CA is, as in ca.example.org:443"`
}

// acme is a client of a CA.
type acme struct{ address string }

func (a acme) CSRSign(_ context.Context, req provider.SignRequest) (provider.Certificate, error) {
	return provider.Certificate{}, provider.Errorf(provider.Unavailable, "%s does not sign %s today", a.address, req.SubjectID)
}

// This is the whole main of a provider: build it as countersign-provider-acme.
func ExampleMain() {
	provider.Main("acme", "0.1.0", func(_ context.Context, s acmeSettings) (acme, error) {
		return acme{s.Address}, nil
	})
}
