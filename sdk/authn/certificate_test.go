package authn_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func authority(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

func client(uris ...string) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, uri := range uris {
		parsed, err := url.Parse(uri)
		if err != nil {
			panic(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	return template
}

func with(template *x509.Certificate, change func(*x509.Certificate)) *x509.Certificate {
	change(template)
	return template
}

const web = "spiffe://example.org/ns/shop/sa/web"

// domains are two trust domains, each with a root of its own.
type domains struct {
	root, other, middle *certtest.Pair
}

func newDomains(t testing.TB) (domains, authn.Certificates) {
	d := domains{root: certtest.SelfSigned(t, authority("root")), other: certtest.SelfSigned(t, authority("other"))}
	d.middle = d.root.Issue(t, authority("middle"))
	bundles := map[string]*pki.Bundle{
		"example.org": pki.NewBundle(d.root.Cert), "other.example": pki.NewBundle(d.other.Cert), "empty.example": pki.NewBundle(),
	}
	return d, authn.Certificates{Roots: func(name string) *pki.Bundle { return bundles[name] }, Now: func() time.Time { return now }}
}

func chain(certs ...*certtest.Pair) authn.Credential {
	var c authn.Credential
	for _, each := range certs {
		c.Chain = append(c.Chain, each.Cert)
	}
	return c
}

func TestCertificateIsVerifiedByRootsOfItsTrustDomain(t *testing.T) {
	d, certificates := newDomains(t)
	noUsage := with(client(web), func(c *x509.Certificate) { c.ExtKeyUsage, c.KeyUsage = nil, 0 })
	for name, shown := range map[string]authn.Credential{
		"signed by the root":                chain(d.root.Issue(t, client(web))),
		"signed by an intermediate":         chain(d.middle.Issue(t, client(web)), d.middle),
		"with the root and strangers in it": chain(d.middle.Issue(t, client(web)), d.other, d.root, d.middle),
		"of any usage":                      chain(d.root.Issue(t, noUsage)),
	} {
		got, err := certificates.Authenticate(t.Context(), shown)
		want := authn.Identity{
			Kind: authn.ByCertificate, SPIFFEID: web, Namespace: "shop", ServiceAccount: "web",
			Issuer: "example.org", Expiry: shown.Chain[0].NotAfter,
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	elsewhere := chain(d.other.Issue(t, client("spiffe://other.example/gateway")))
	if got, err := certificates.Authenticate(t.Context(), elsewhere); err != nil || got.Issuer != "other.example" || got.Namespace != "" {
		t.Errorf("of the other domain: %+v, %v", got, err)
	}
}

func TestMissingClientCertificateIsNotARefusal(t *testing.T) {
	_, certificates := newDomains(t)
	if _, err := certificates.Authenticate(t.Context(), authn.Credential{Token: bearer}); !errors.Is(err, authn.ErrNotMine) {
		t.Errorf("got %v", err)
	}
}

func TestHostileCertificateIsRefusedWithReason(t *testing.T) {
	d, certificates := newDomains(t)
	stranger := certtest.SelfSigned(t, authority("root")) // the root's very name
	leaf := d.root.Issue(t, client(web))
	for name, test := range map[string]struct {
		shown authn.Credential
		says  string
	}{
		"other-domains-root.pem":       {chain(d.other.Issue(t, client(web))), "unknown authority"},
		"roots-name-other-key.pem":     {chain(stranger.Issue(t, client(web)), stranger), "unknown authority"},
		"self-signed.pem":              {chain(certtest.SelfSigned(t, client(web))), "unknown authority"},
		"no-intermediate.pem":          {chain(d.middle.Issue(t, client(web))), "unknown authority"},
		"signed-by-a-leaf.pem":         {chain(leaf.Issue(t, client(web)), leaf), "parent certificate cannot sign"},
		"unknown-domain.pem":           {chain(d.root.Issue(t, client("spiffe://third.example/web"))), "unknown trust domain"},
		"domain-without-roots.pem":     {chain(d.root.Issue(t, client("spiffe://empty.example/web"))), "unknown trust domain"},
		"two-uris.pem":                 {chain(d.root.Issue(t, client(web, "spiffe://other.example/gateway"))), "has 2 URI names"},
		"same-uri-twice.pem":           {chain(d.root.Issue(t, client(web, web))), "has 2 URI names"},
		"no-uri.pem":                   {chain(d.root.Issue(t, with(client(), func(c *x509.Certificate) { c.DNSNames = []string{"web.shop"} }))), "has 0 URI names"},
		"https-uri.pem":                {chain(d.root.Issue(t, client("https://example.org/ns/shop/sa/web"))), "must begin with spiffe://"},
		"upper-case-domain.pem":        {chain(d.root.Issue(t, client("spiffe://Example.org/web"))), "lower-case"},
		"user-in-uri.pem":              {chain(d.root.Issue(t, client("spiffe://me@example.org/web"))), "SPIFFE ID"},
		"port-in-uri.pem":              {chain(d.root.Issue(t, client("spiffe://example.org:443/web"))), "SPIFFE ID"},
		"query-in-uri.pem":             {chain(d.root.Issue(t, client("spiffe://example.org/web?x=1"))), "SPIFFE ID"},
		"escaped-slash-in-uri.pem":     {chain(d.root.Issue(t, client("spiffe://example.org/ns/shop%2Fsa/web"))), "SPIFFE ID"},
		"dots-in-uri.pem":              {chain(d.root.Issue(t, client("spiffe://example.org/ns/shop/../kube-system/sa/web"))), "SPIFFE ID"},
		"domain-alone.pem":             {chain(d.root.Issue(t, client("spiffe://example.org"))), "needs a path"},
		"expired.pem":                  {chain(d.root.Issue(t, with(client(web), func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }))), "expired"},
		"not-yet-valid.pem":            {chain(d.root.Issue(t, with(client(web), func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }))), "not yet valid"},
		"leaf-ca-true.pem":             {chain(d.root.Issue(t, with(client(web), func(c *x509.Certificate) { c.IsCA = true }))), "is a CA certificate"},
		"leaf-signs-certificates.pem":  {chain(d.root.Issue(t, with(authority("x"), func(c *x509.Certificate) { c.URIs = client(web).URIs }))), "is a CA certificate"},
		"leaf-signs-lists.pem":         {chain(d.root.Issue(t, with(client(web), func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }))), "is a CA certificate"},
		"server-only.pem":              {chain(d.root.Issue(t, with(client(web), func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }))), "incompatible key usage"},
		"no-digital-signature.pem":     {chain(d.root.Issue(t, with(client(web), func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }))), "lacks digital signature"},
		"other-domains-root-first.pem": {chain(d.other, leaf), "is a CA certificate"},
		"eleven-certificates.pem":      {chain(leaf, leaf, leaf, leaf, leaf, leaf, leaf, leaf, leaf, leaf, leaf), "11 certificates"},
	} {
		got, err := certificates.Authenticate(t.Context(), test.shown)
		if !errors.Is(err, authn.ErrRefused) || got != (authn.Identity{}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %+v, %v; want a refusal with %q", name, got, err, test.says)
		}
	}
}

// Each certificate of the stranger's may have issued each other. Its keys are not computed with.
func TestStrangersChainCostsNoSearch(t *testing.T) {
	d, certificates := newDomains(t)
	stranger := certtest.SelfSigned(t, authority("stranger"))
	shown := chain(stranger.Issue(t, client(web)))
	for serial := range int64(8) {
		shown.Chain = append(shown.Chain, stranger.Sign(t, with(authority("stranger"), func(c *x509.Certificate) { c.SerialNumber = big.NewInt(serial + 10) }), stranger.Key.Public()))
	}
	shown.Chain = append(shown.Chain, d.middle.Cert)
	_, err := certificates.Authenticate(t.Context(), shown)
	// The error names the certificate at which the search ended: the leaf.
	if !errors.Is(err, authn.ErrRefused) || !strings.Contains(err.Error(), `"": x509`) {
		t.Errorf("got %v", err)
	}
}

func TestRootsAreReadAtEachAuthentication(t *testing.T) {
	d, certificates := newDomains(t)
	shown := chain(d.root.Issue(t, client(web)))
	bundle := pki.NewBundle(d.other.Cert)
	certificates.Roots = func(string) *pki.Bundle { return bundle }
	if _, err := certificates.Authenticate(t.Context(), shown); !errors.Is(err, authn.ErrRefused) {
		t.Errorf("before the root is there: %v", err)
	}
	bundle = bundle.Union(pki.NewBundle(d.root.Cert))
	if _, err := certificates.Authenticate(t.Context(), shown); err != nil {
		t.Errorf("with the root: %v", err)
	}
}

// A server asks for a certificate and leaves its roots to us: the handshake must have
// proved the key then.
func TestHandshakeProvesKeyOfUnverifiedCertificate(t *testing.T) {
	d, certificates := newDomains(t)
	leaf, server := d.middle.Issue(t, client(web)), d.root.Issue(t, client(web))
	for name, test := range map[string]struct {
		key  *ecdsa.PrivateKey
		want error
	}{"its own key": {leaf.Key, nil}, "a stranger's": {server.Key, authn.ErrNotMine}} {
		here, there := net.Pipe()
		shown := tls.Certificate{Certificate: [][]byte{leaf.Cert.Raw, d.middle.Cert.Raw}, PrivateKey: test.key}
		caller := tls.Client(there, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = caller.Handshake()
			_, _ = io.Copy(io.Discard, caller)
		}()
		conn := tls.Server(here, &tls.Config{
			ClientAuth:   tls.RequestClientCert,
			Certificates: []tls.Certificate{{Certificate: [][]byte{server.Cert.Raw}, PrivateKey: server.Key}},
		})
		failed := conn.Handshake()
		got := conn.ConnectionState().PeerCertificates
		if failed != nil {
			got = nil
		}
		if _, err := certificates.Authenticate(t.Context(), authn.Credential{Chain: got}); !errors.Is(err, test.want) || (failed == nil) != (test.want == nil) {
			t.Errorf("%s: handshake %v, %v", name, failed, err)
		}
		_ = here.Close()
		<-done
	}
}

func BenchmarkCertificate(b *testing.B) {
	d, certificates := newDomains(b)
	shown := chain(d.middle.Issue(b, client(web)), d.middle)
	for b.Loop() {
		if _, err := certificates.Authenticate(b.Context(), shown); err != nil {
			b.Fatal(err)
		}
	}
}
