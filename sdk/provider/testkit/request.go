package testkit

import (
	"crypto"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// CSR returns a new ECDSA P-256 key and a CSR for the identity, in PEM.
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

// Identity returns the identity with these names. An empty spiffeID is left out.
func Identity(tb testing.TB, spiffeID string, dnsNames, ips []string) pki.Identity {
	tb.Helper()
	id, err := pki.NewIdentity(spiffeID, dnsNames, ips)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// Request returns a request for a certificate of one hour with these names, and the new
// key that its CSR is for. It has an ID and no token.
func Request(tb testing.TB, spiffeID string, dnsNames ...string) (ca.SignRequest, crypto.Signer) {
	tb.Helper()
	key, csr := CSR(tb, Identity(tb, spiffeID, dnsNames, nil))
	return ca.SignRequest{ID: uuid.NewString(), CSR: csr, SubjectID: spiffeID, DNSNames: dnsNames, TTL: time.Hour}, key
}

// Check returns the check that an agent makes of the reply to a [Request].
func Check(tb testing.TB, req ca.SignRequest, key crypto.Signer) pki.Check {
	tb.Helper()
	id := Identity(tb, req.SubjectID, req.DNSNames, nil)
	return pki.Check{Key: key.Public(), Identity: id, RequestID: req.ID, Now: time.Now(), AskedUntil: time.Now().Add(req.TTL)}
}

// Pair has an authority sign a certificate for the identity. It returns the chain, leaf
// first, and the key, both in PEM.
func Pair(tb testing.TB, authority ca.Client, id pki.Identity) (chain, key []byte) {
	tb.Helper()
	signer, csr := CSR(tb, id)
	reply, err := authority.CSRSign(tb.Context(), ca.SignRequest{CSR: csr})
	if err != nil {
		tb.Fatal(err)
	}
	if key, err = pki.EncodeKey(signer); err != nil {
		tb.Fatal(err)
	}
	return reply.Chain, key
}

// Passes fails the test unless the reply passes the check, with the reply's own roots
// trusted. It returns the verified chain.
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

// Fails fails the test unless err has the reason of want and contains each of says. It
// also fails where err contains the beginning of the token, which has at least 20 bytes.
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
