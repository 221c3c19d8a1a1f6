package provider_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// certifier certifies the names of requests as far as its settings allow it, and gives advice.
type certifier struct{ allowed error }

func (*certifier) CSRSign(context.Context, provider.SignRequest) (provider.Certificate, error) {
	return provider.Certificate{}, ca.ErrDenied
}

func (c *certifier) CertifiesNames(context.Context) error { return c.allowed }

func (*certifier) RenewalInfo(context.Context, []byte) (provider.RenewalInfo, error) {
	return provider.RenewalInfo{Start: time.Unix(1, 0), End: time.Unix(2, 0)}, nil
}

func (*certifier) Revocations(context.Context) ([]byte, error) { return []byte("lists"), nil }

func (*certifier) SignJWT(context.Context, provider.JWTRequest) (provider.Token, error) {
	return "a.b.c", nil
}

func (*certifier) WatchJWTKeys(_ context.Context, changed func([]byte) error) error {
	return changed([]byte("{}"))
}

func (*certifier) SignWIT(context.Context, provider.WITRequest) (provider.Token, error) {
	return "w.i.t", nil
}

func (*certifier) WatchWITKeys(_ context.Context, changed func([]byte) error) error {
	return changed([]byte("{}"))
}

func TestMethodsOfTheAuthorityAreItsAbilities(t *testing.T) {
	for _, allowed := range []error{nil, provider.Errorf(provider.Invalid, "the settings let the CSR decide")} {
		p := provider.Define("acme", "1.0.0", func(context.Context, struct{}) (*certifier, error) { return &certifier{allowed}, nil }).Provider()
		m, err := p.Metadata(t.Context())
		if err != nil || !m.Has(wire.NamesFromRequest) || !m.Has(wire.RenewalInfo) || !m.Has(wire.RevocationSource) || !m.Has(wire.JWTSVID) || !m.Has(wire.WITSVID) || m.Has(wire.RootSource) {
			t.Errorf("%v, %v", m.Abilities, err)
		}
		if err := p.CertifiesNames(t.Context()); !errors.Is(err, ca.ErrNotConfigured) {
			t.Errorf("without settings: %v", err)
		}
		must(t, p.Configure(t.Context(), nil))
		if err := p.CertifiesNames(t.Context()); !errors.Is(err, allowed) {
			t.Errorf("got %v, want %v", err, allowed)
		}
		if info, err := p.RenewalInfo(t.Context(), nil); err != nil || !info.End.After(info.Start) {
			t.Errorf("%+v, %v", info, err)
		}
		if lists, err := p.Revocations(t.Context()); err != nil || string(lists) != "lists" {
			t.Errorf("lists: %q, %v", lists, err)
		}
		token, err := p.SignJWT(t.Context(), provider.JWTRequest{})
		if err != nil || token != "a.b.c" || p.WatchJWTKeys(t.Context(), func([]byte) error { return nil }) != nil {
			t.Errorf("JWT-SVIDs: %v", err)
		}
		token, err = p.SignWIT(t.Context(), provider.WITRequest{})
		if err != nil || token != "w.i.t" || p.WatchWITKeys(t.Context(), func([]byte) error { return nil }) != nil {
			t.Errorf("WIT-SVIDs: %v", err)
		}
	}
}
