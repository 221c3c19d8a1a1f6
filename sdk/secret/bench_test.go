package secret_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// BenchmarkIssuance is a key, a CSR, an authority in memory and the checks of its reply.
func BenchmarkIssuance(b *testing.B) {
	authority := catest.NewCA(catest.Options{})
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: signOnly{authority}}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	signer := m.Signer("test")
	defer signer.Close()
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		order, err := secret.NewOrder(secret.Spec{Name: "default", Identity: id, TTL: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := signer.Sign(b.Context(), order, "", func(pki.Identity) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
