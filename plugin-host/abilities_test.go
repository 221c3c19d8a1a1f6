package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
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

// RenewalInfo derives the window from the end of the certificate, so that the answer shows which
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

func (*advising) SignJWT(_ context.Context, req provider.JWTRequest) (provider.Token, error) {
	return provider.Token(req.SubjectID + " for " + req.Audiences[0]), nil
}

// WatchJWTKeys returns keys that name their owner.
func (*advising) WatchJWTKeys(ctx context.Context, changed func([]byte) error) error {
	if err := changed(fmt.Append(nil, "keys of ", os.Getpid())); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (*advising) SignWIT(_ context.Context, req provider.WITRequest) (provider.Token, error) {
	return provider.Token(req.SubjectID + " with " + string(req.PublicKey)), nil
}

func (*advising) WatchWITKeys(ctx context.Context, changed func([]byte) error) error {
	if err := changed([]byte("keys of WIT-SVIDs")); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// publicJWK is the key of RFC 7517, appendix A.1.
const publicJWK = `{"kty":"EC","alg":"ES256","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`

func witRequest() provider.WITRequest {
	return provider.WITRequest{
		ID: jwtRequest().ID, SubjectID: jwtRequest().SubjectID, PublicKey: []byte(publicJWK), TTL: jwtRequest().TTL,
	}
}

func jwtRequest() provider.JWTRequest {
	return provider.JWTRequest{
		ID: "7b3bd6a1-4b5d-4a8e-9a3e-0c7d2f1e9b10", SubjectID: "spiffe://example.org/web", Audiences: []string{"db"}, TTL: time.Minute,
	}
}

func TestAbilitiesCrossTheBoundaryToAProcess(t *testing.T) {
	p := newHost(t, "advising").open(t, pluginhost.Entry{Name: "advising"})
	cert, err := p.CSRSign(t.Context(), request(t))
	must(t, err)
	certs, err := pki.ParseCertificates(cert.Chain)
	must(t, err)
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
	if token, err := p.SignJWT(t.Context(), jwtRequest()); err != nil || token != "spiffe://example.org/web for db" {
		t.Errorf("JWT-SVID: %v", err)
	}
	if token, err := p.SignWIT(t.Context(), witRequest()); err != nil || token != "spiffe://example.org/web with "+publicJWK {
		t.Errorf("WIT-SVID: %v", err)
	}
	enough := errors.New("enough")
	err = p.WatchWITKeys(t.Context(), func(jwks []byte) error {
		if string(jwks) != "keys of WIT-SVIDs" {
			t.Errorf("WIT keys: %q", jwks)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Errorf("WIT keys: %v", err)
	}
}

func TestKeyWatchContinuesInNextProcess(t *testing.T) {
	p := newHost(t, "advising").open(t, pluginhost.Entry{Name: "advising"})
	ctx, stop := context.WithCancel(t.Context())
	seen, over := make(chan string, 10), make(chan error, 1)
	go func() {
		over <- p.WatchJWTKeys(ctx, func(jwks []byte) error { seen <- string(jwks); return nil })
	}()
	last := 0
	for range 2 {
		var pid int
		select {
		case keys := <-seen:
			if _, err := fmt.Sscanf(keys, "keys of %d", &pid); err != nil || pid == last {
				t.Fatalf("%q after those of %d, %v", keys, last, err)
			}
		case <-time.After(patience):
			t.Fatal("no keys")
		}
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		last = pid
	}
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
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
	if _, err := p.SignJWT(t.Context(), jwtRequest()); !errors.Is(err, ca.ErrUnimplemented) {
		t.Errorf("JWT-SVID: %v", err)
	}
	if err := p.WatchJWTKeys(t.Context(), func([]byte) error { return nil }); !errors.Is(err, ca.ErrUnimplemented) {
		t.Errorf("JWT keys: %v", err)
	}
	if _, err := p.SignWIT(t.Context(), witRequest()); !errors.Is(err, ca.ErrUnimplemented) {
		t.Errorf("WIT-SVID: %v", err)
	}
	if err := p.WatchWITKeys(t.Context(), func([]byte) error { return nil }); !errors.Is(err, ca.ErrUnimplemented) {
		t.Errorf("WIT keys: %v", err)
	}
}
