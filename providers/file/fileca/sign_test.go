package fileca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestLeafHasRequestedNamesAndTLSUsages(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 2})
	c := mustOpen(t, Settings{Dir: folderOf(t, authority.IstioFiles())})
	for _, keyType := range []pki.KeyType{pki.ECDSAP256, pki.ECDSAP384, pki.RSA2048, pki.Ed25519} {
		t.Run(string(keyType), func(t *testing.T) {
			req, check := web.request(t, keyType)
			chain := sign(t, c, req, check) // checks key, names, order and the way to the root
			leaf := chain.Leaf
			wantUsage := x509.KeyUsageDigitalSignature
			if keyType == pki.RSA2048 {
				wantUsage |= x509.KeyUsageKeyEncipherment
			}
			if leaf.KeyUsage != wantUsage || len(leaf.ExtKeyUsage) != 2 || leaf.IsCA || !leaf.BasicConstraintsValid {
				t.Errorf("usage %b, extended %v, CA %t", leaf.KeyUsage, leaf.ExtKeyUsage, leaf.IsCA)
			}
			if leaf.Subject.String() != "" || !critical(leaf, 17) || !critical(leaf, 19) {
				t.Errorf("subject %q; the names and the basic constraints must be critical", leaf.Subject)
			}
			if len(leaf.SubjectKeyId) != 20 || leaf.SerialNumber.BitLen() < 100 {
				t.Errorf("key id %x, serial number %x", leaf.SubjectKeyId, leaf.SerialNumber)
			}
			if len(chain.Certificates) != 3 || !bytes.Equal(leaf.AuthorityKeyId, chain.Certificates[1].SubjectKeyId) {
				t.Errorf("%d certificates, authority key id %x", len(chain.Certificates), leaf.AuthorityKeyId)
			}
		})
	}
}

// critical reports whether the extension id-ce-<arc> is critical (RFC 5280, section 4.2.1).
func critical(cert *x509.Certificate, arc int) bool {
	for _, extension := range cert.Extensions {
		if extension.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, arc}) {
			return extension.Critical
		}
	}
	return false
}

func TestSelfSignedRootIsNotInChain(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	c := mustOpen(t, Settings{Dir: folderOf(t, authority.IstioFiles())})
	req, check := web.request(t, "")
	if chain := sign(t, c, req, check); len(chain.Certificates) != 1 {
		t.Errorf("the chain has %d certificates", len(chain.Certificates))
	}
}

func TestOnlyRequestedNamesAreCertified(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	c := mustOpen(t, Settings{Dir: folderOf(t, authority.IstioFiles()), TrustDomain: "example.org"})
	other := func(change func(*asked)) asked {
		names := asked{web.spiffeID, append([]string{}, web.dns...), append([]string{}, web.ips...)}
		change(&names)
		return names
	}
	for name, test := range map[string]struct {
		request, csr asked
		refused      error
	}{
		"the-same":              {request: web, csr: web},
		"the-same-another-way":  {request: other(func(a *asked) { a.dns[0] = "WEB.shop.svc" }), csr: web},
		"csr-with-another-id":   {request: web, csr: other(func(a *asked) { a.spiffeID += "2" })},
		"csr-with-one-more":     {request: web, csr: other(func(a *asked) { a.dns = append(a.dns, "admin.shop.svc") })},
		"csr-with-one-address":  {request: web, csr: other(func(a *asked) { a.ips = a.ips[:1] })},
		"csr-with-no-dns-name":  {request: web, csr: other(func(a *asked) { a.dns = nil })},
		"csr-with-no-id":        {request: web, csr: other(func(a *asked) { a.spiffeID = "" })},
		"request-without-names": {asked{}, web, ca.ErrInvalid},
		"request-with-a-bad-id": {other(func(a *asked) { a.spiffeID = "spiffe://EXAMPLE/" }), web, ca.ErrInvalid},
		"another-trust-domain":  {other(func(a *asked) { a.spiffeID = "spiffe://evil.org/x" }), other(func(a *asked) { a.spiffeID = "spiffe://evil.org/x" }), ca.ErrDenied},
		"names-without-an-id":   {request: other(func(a *asked) { a.spiffeID = "" }), csr: other(func(a *asked) { a.spiffeID = "" })},
	} {
		t.Run(name, func(t *testing.T) {
			csr, _ := test.csr.request(t, "")
			cert, err := c.CSRSign(t.Context(), test.request.asking(csr.CSR))
			if !errors.Is(err, test.refused) {
				t.Errorf("got %v, want %v", err, test.refused)
			}
			if err == nil {
				mustHaveNames(t, cert, test.request)
			}
		})
	}
}

func TestMalformedRequestIsInvalid(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	c := mustOpen(t, Settings{Dir: folderOf(t, authority.IstioFiles())})
	good, _ := web.request(t, "")
	id, _ := url.Parse(web.spiffeID)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	onlyID := asked{spiffeID: web.spiffeID}
	for name, req := range map[string]ca.SignRequest{
		"no-csr":                  web.asking(nil),
		"not-pem":                 web.asking([]byte("hello")),
		"two-blocks":              web.asking(append(bytes.Clone(good.CSR), good.CSR...)),
		"signature-does-not-hold": web.asking(brokenSignature(t, good.CSR)),
		"weak-key":                onlyID.asking(rawCSR(t, weak, x509.CertificateRequest{URIs: []*url.URL{id}})),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOnlyTheKeyOfTheCSRIsUsed(t *testing.T) {
	c := mustOpen(t, Settings{Dir: folderOf(t, catest.NewCA(catest.Options{}).IstioFiles())})
	key, err := pki.GenerateKey("")
	if err != nil {
		t.Fatal(err)
	}
	id, _ := url.Parse(web.spiffeID)
	for name, template := range map[string]x509.CertificateRequest{
		"empty":               {},
		"two-ids":             {URIs: []*url.URL{id, id}},
		"e-mail":              {EmailAddresses: []string{"a@example.org"}},
		"another-common-name": {Subject: pkix.Name{CommonName: "admin"}},
		"web-link":            {URIs: []*url.URL{{Scheme: "https", Host: "example.org"}}},
	} {
		t.Run(name, func(t *testing.T) {
			cert, err := c.CSRSign(t.Context(), web.asking(rawCSR(t, key, template)))
			if err != nil {
				t.Fatal(err)
			}
			mustHaveNames(t, cert, web)
		})
	}
}

func rawCSR(t *testing.T, key crypto.Signer, template x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// brokenSignature changes a bit of the CSR's key, which its signature covers.
func brokenSignature(t *testing.T, csr []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(csr)
	other, _ := web.request(t, "")
	foreign, _ := pem.Decode(other.CSR)
	var a, b struct{ Info, Algorithm, Signature asn1.RawValue }
	if _, err := asn1.Unmarshal(block.Bytes, &a); err != nil {
		t.Fatal(err)
	}
	if _, err := asn1.Unmarshal(foreign.Bytes, &b); err != nil {
		t.Fatal(err)
	}
	a.Signature = b.Signature
	der, err := asn1.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestLifetimeIsCappedBySettingAndCA(t *testing.T) {
	day := 24 * time.Hour
	for name, test := range map[string]struct {
		maxTTL     time.Duration
		caLifetime time.Duration // of which an hour is over
		asked      time.Duration
		want       time.Duration
	}{
		"as-asked":               {asked: 3 * time.Hour, want: 3 * time.Hour},
		"nothing-asked":          {want: day},
		"more-than-the-default":  {asked: 100 * day, want: day},
		"more-than-the-setting":  {maxTTL: 2 * time.Hour, asked: 3 * time.Hour, want: 2 * time.Hour},
		"longer-by-the-setting":  {maxTTL: 100 * time.Hour, asked: 50 * time.Hour, want: 50 * time.Hour},
		"nothing-asked-long-max": {maxTTL: 1000 * time.Hour, want: day},
		"short-max":              {maxTTL: time.Minute, want: time.Minute},
		"past-the-end-of-the-ca": {caLifetime: 3 * time.Hour, want: 2 * time.Hour},
		"the-shortest":           {asked: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now().Truncate(time.Second) // certificates know no fractions
			clock := func() time.Time { return now }
			authority := catest.NewCA(catest.Options{Intermediates: 1, CALifetime: test.caLifetime, Now: clock})
			c := openAt(t, Settings{Dir: folderOf(t, authority.IstioFiles()), MaxTTL: test.maxTTL}, clock)
			req, check := web.request(t, "")
			req.TTL, check.Now = test.asked, now
			leaf := sign(t, c, req, check).Leaf
			if got := leaf.NotAfter.Sub(now); got != test.want {
				t.Errorf("it ends after %s, want %s", got, test.want)
			}
			if back := now.Sub(leaf.NotBefore); back != 2*time.Minute {
				t.Errorf("it began %s ago", back)
			}
		})
	}
}

func openAt(t *testing.T, settings Settings, clock func() time.Time) *CA {
	t.Helper()
	c, err := open(t.Context(), settings, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestLeafDoesNotBeginBeforeCA(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	earlier := func() time.Time { return now.Add(time.Hour - time.Second) } // its root began a second ago
	authority := catest.NewCA(catest.Options{Now: earlier})
	c := openAt(t, Settings{Dir: folderOf(t, authority.IstioFiles())}, func() time.Time { return now })
	req, check := web.request(t, "")
	if leaf := sign(t, c, req, check).Leaf; !leaf.NotBefore.Equal(now.Add(-time.Second)) {
		t.Errorf("it began %s ago", now.Sub(leaf.NotBefore))
	}
}

func TestLeafDoesNotOutliveRoot(t *testing.T) {
	files := below(t, func(*x509.Certificate) {})
	root, err := pki.ParseCertificates(files[rootFile])
	if err != nil {
		t.Fatal(err)
	}
	c := mustOpen(t, Settings{Dir: folderOf(t, files)})
	req, check := web.request(t, "")
	if leaf := sign(t, c, req, check).Leaf; !leaf.NotAfter.Equal(root[0].NotAfter) {
		t.Errorf("it ends at %s, the root at %s", leaf.NotAfter, root[0].NotAfter)
	}
}

func TestSenselessLifetimeIsInvalid(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	c := mustOpen(t, Settings{Dir: folderOf(t, authority.IstioFiles())})
	for _, ttl := range []time.Duration{-time.Hour, time.Millisecond} {
		req, _ := web.request(t, "")
		req.TTL = ttl
		if _, err := c.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("%s: %v", ttl, err)
		}
	}
}

func TestCAExpiringBetweenCallsIsUnavailable(t *testing.T) {
	now := time.Now()
	authority := catest.NewCA(catest.Options{CALifetime: 2 * time.Hour}) // an hour of it is left
	files := authority.IstioFiles()
	clock := make(chan time.Time, 1)
	clock <- now
	read := func() time.Time { now := <-clock; clock <- now; return now }
	c := openAt(t, Settings{Dir: folderOf(t, files)}, read)
	req, check := web.request(t, "")
	sign(t, c, req, check)
	<-clock
	clock <- now.Add(2 * time.Hour)
	_, err := c.CSRSign(t.Context(), req)
	if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("got %v", err)
	}
}

func TestCancelledCallSignsNothing(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	c := mustOpen(t, Settings{Dir: folderOf(t, authority.IstioFiles())})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, _ := web.request(t, "")
	if _, err := c.CSRSign(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
