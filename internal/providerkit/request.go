// Package providerkit is what the tests of providers share: [Request] and [Check] are an
// agent's question and its look at the answer, [Start] runs a provider as any go-plugin
// host does, [Agent] under an agent of the house.
package providerkit

import (
	"crypto"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// CSR makes a key and a CSR for the identity.
func CSR(tb testing.TB, id pki.Identity) (crypto.Signer, []byte) {
	tb.Helper()
	key, err := pki.GenerateKey("")
	if err != nil {
		tb.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		tb.Fatal(err)
	}
	return key, csr
}

// Identity is that of the names.
func Identity(tb testing.TB, spiffeID string, dnsNames, ips []string) pki.Identity {
	tb.Helper()
	id, err := pki.NewIdentity(spiffeID, dnsNames, ips)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// Request asks for an hour for these names, with a key of its own.
func Request(tb testing.TB, spiffeID string, dnsNames ...string) (ca.SignRequest, crypto.Signer) {
	tb.Helper()
	key, csr := CSR(tb, Identity(tb, spiffeID, dnsNames, nil))
	return ca.SignRequest{ID: uuid.NewString(), CSR: csr, SubjectID: spiffeID, DNSNames: dnsNames, TTL: time.Hour}, key
}

// Check is how an agent looks at the reply to a [Request].
func Check(tb testing.TB, req ca.SignRequest, key crypto.Signer) pki.Check {
	tb.Helper()
	id := Identity(tb, req.SubjectID, req.DNSNames, nil)
	return pki.Check{Key: key.Public(), Identity: id, Now: time.Now(), AskedUntil: time.Now().Add(req.TTL)}
}

// Passes demands a reply that an agent takes; its own roots are those to trust.
func Passes(tb testing.TB, reply ca.Certificate, check pki.Check) *pki.Chain {
	tb.Helper()
	var err error
	if check.Roots, err = pki.ParseBundle(reply.Roots); err != nil {
		tb.Fatal(err)
	}
	chain, err := check.Chain(reply.Chain)
	if err != nil {
		tb.Fatal(err)
	}
	return chain
}

// Fails demands an error of that reason that says all of these, and no token.
func Fails(tb testing.TB, err error, token ca.Token, want *ca.Error, says ...string) {
	tb.Helper()
	if err == nil || ca.ReasonFor(err) != want.Reason {
		tb.Fatalf("got %v, want the reason %q", err, want.Reason)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			tb.Errorf("got %q, which lacks %q", err, text)
		}
	}
	if strings.Contains(err.Error(), token.Reveal()[:20]) {
		tb.Errorf("the error has the token: %s", err)
	}
}
