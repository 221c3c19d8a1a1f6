package pluginhost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// advising is the good provider with abilities that it lacks.
type advising struct{ *authority }

func openAdvising(ctx context.Context, s settings) (*advising, error) {
	a, err := open(ctx, s)
	return &advising{a}, err
}

func (*advising) CertifiesNames(context.Context) error { return nil }

// RenewalInfo tells the window from the end of the certificate, so that the answer shows which
// was asked about.
func (*advising) RenewalInfo(_ context.Context, leaf []byte) (provider.RenewalInfo, error) {
	certs, err := pki.ParseCertificates(leaf)
	if err != nil || len(certs) != 1 {
		return provider.RenewalInfo{}, provider.Errorf(provider.Invalid, "%d certificates: %w", len(certs), err)
	}
	end := certs[0].NotAfter
	return provider.RenewalInfo{Start: end.Add(-2 * time.Minute), End: end.Add(-time.Minute), Explanation: "https://ca.example/", RetryAfter: time.Hour}, nil
}

func (*advising) Revocations(context.Context) ([]byte, error) { return []byte("lists"), nil }

func TestAbilitiesCrossTheBoundaryToAProcess(t *testing.T) {
	p := newHost(t, "advising").open(t, pluginhost.Entry{Name: "advising"})
	cert, err := p.CSRSign(t.Context(), request(t))
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCertificates(cert.Chain)
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.RenewalInfo(t.Context(), pki.EncodeCertificates(certs[:1]))
	if err != nil || !info.End.Equal(certs[0].NotAfter.Add(-time.Minute)) || info.RetryAfter != time.Hour || info.Explanation == "" {
		t.Errorf("%+v, %v", info, err)
	}
	if lists, err := p.Revocations(t.Context()); err != nil || string(lists) != "lists" {
		t.Errorf("lists: %q, %v", lists, err)
	}
	if err := p.CertifiesNames(t.Context()); err != nil {
		t.Errorf("with the ability: %v", err)
	}
}

func TestMissingAbilitiesAreUnimplemented(t *testing.T) {
	p := newHost(t, "good").open(t, pluginhost.Entry{Name: "good"})
	if err := p.CertifiesNames(t.Context()); !errors.Is(err, ca.ErrUnimplemented) {
		t.Errorf("names: %v", err)
	}
	leaf := []byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
	if _, err := p.RenewalInfo(t.Context(), leaf); !errors.Is(err, ca.ErrUnimplemented) {
		t.Errorf("advice: %v", err)
	}
	if _, err := p.Revocations(t.Context()); !errors.Is(err, ca.ErrUnimplemented) {
		t.Errorf("lists: %v", err)
	}
}
