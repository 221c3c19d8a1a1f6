package tlsconfig_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// A leaf that may sign others is refused (X509-SVID, section 5.2), even if it is not a CA.
func TestPeerWithSigningRightsIsRefused(t *testing.T) {
	root := certtest.Root(t)
	source := secrettest.New(secret.NewTrustBundle("ROOTCA", "", pki.NewBundle(root.Cert)))
	verifier, err := tlsconfig.NewVerifier(tlsconfig.Options{Source: source, Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org")})
	if err != nil {
		t.Fatal(err)
	}
	for usage, refused := range map[x509.KeyUsage]bool{0: false, x509.KeyUsageCertSign: true, x509.KeyUsageCRLSign: true} {
		template := certtest.Leaf(t, time.Hour, "spiffe://example.org/web")
		template.KeyUsage |= usage
		leaf := root.Issue(t, template).Cert
		err := verifier.VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
		if refused != errors.Is(err, tlsconfig.ErrUntrusted) || !refused && err != nil {
			t.Errorf("usage %b: %v", usage, err)
		}
	}
}
