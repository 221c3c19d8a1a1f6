package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Envoy's SPIFFE validator takes from a CA no names of another trust domain; roots alone do not
// care.
func TestSPIFFEValidatorIsAsConfigured(t *testing.T) {
	for validator, c := range map[string]struct {
		certificate, roots string
		admitsStranger     bool
	}{
		"always": {"default", "ROOTCA", false},
		"never":  {envoyID, "spiffe://" + trustDomain, true},
	} {
		t.Run(validator, func(t *testing.T) {
			needEnvoy(t)
			dir := proctest.Folder(t)
			root := newAuthorityIn(t, dir, "root")
			a := startAgent(t, agentConfig{first: dir, validator: validator})
			anyID := strings.Replace(bootstrap, `"spiffe://{{.TrustDomain}}/"`, `"spiffe://"`, 1)
			server := runEnvoy(t, anyID, serverFields(a.socket, stateOfTheWorld, c.certificate, c.roots)).address(t)
			awaitAdmitted(t, "Envoy to admit a client", server, root.svid(t, trustDomain), true)
			if got := admits(t, server, root.svid(t, "stranger.test")); got != c.admitsStranger {
				t.Errorf("a client in another trust domain is admitted: %t", got)
			}
		})
	}
}

// svid is a client in a trust domain. Envoy's validator refuses it without a key usage.
func (a *authority) svid(t *testing.T, domain string) *tls.Certificate {
	t.Helper()
	chain, key := a.leaf(t, &x509.Certificate{
		URIs:     []*url.URL{{Scheme: "spiffe", Host: domain, Path: "/peer"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	pair, err := tls.X509KeyPair(chain, key)
	mustDo(t, err)
	return &pair
}
