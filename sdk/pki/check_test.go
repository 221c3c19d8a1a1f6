package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// issuer is a certificate with its key, for making others.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(240 * time.Hour),
	}
}

func leafTemplate() *x509.Certificate {
	id, _ := url.Parse("spiffe://example.org/web")
	return &x509.Certificate{
		URIs: []*url.URL{id}, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   now.Add(-2 * time.Minute), NotAfter: now.Add(time.Hour),
	}
}

// issue signs the template for key; a nil parent signs itself.
func (parent *issuer) issue(t testing.TB, template *x509.Certificate, key crypto.Signer) *issuer {
	t.Helper()
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	if parent == nil {
		parent = &issuer{template, key}
	}
	return &issuer{certtest.Sign(t, template, parent.cert, key.Public(), parent.key), key}
}

func TestReplyIsServedOnlyIfEveryCheckHolds(t *testing.T) {
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	middle := root.issue(t, caTemplate("middle"), mustKey(t, ""))
	stranger := (*issuer)(nil).issue(t, caTemplate("stranger"), mustKey(t, ""))
	key := mustKey(t, "")
	leaf := func(change func(*x509.Certificate)) *x509.Certificate {
		template := leafTemplate()
		change(template)
		return middle.issue(t, template, key).cert
	}
	good := leaf(func(*x509.Certificate) {})
	named := func(subject pkix.Name) []*x509.Certificate {
		return []*x509.Certificate{leaf(func(c *x509.Certificate) { c.Subject = subject }), middle.cert}
	}
	withNames := func(tag int, value string) []*x509.Certificate {
		return []*x509.Certificate{leaf(func(c *x509.Certificate) {
			all := []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: tag, IsCompound: tag == 0 || tag == 4, Bytes: []byte(value)}}
			if tag != tagURI {
				all = append(all, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tagURI, Bytes: []byte(c.URIs[0].String())})
			}
			der, err := asn1.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs, c.ExtraExtensions = nil, []pkix.Extension{{Id: oidSubjectAltName, Value: der}}
		}), middle.cert}
	}
	var long []*x509.Certificate
	deep := middle
	for range 10 {
		long = append(long, deep.cert)
		deep = deep.issue(t, caTemplate("deep"), mustKey(t, ""))
	}
	long = append(long, deep.cert, deep.issue(t, leafTemplate(), key).cert)
	otherName := func(c *x509.Certificate) { c.URIs[0].Path = "/db" }
	otherDomain := func(c *x509.Certificate) { c.URIs[0].Host = "example.com" }
	for name, c := range map[string]struct {
		chain []*x509.Certificate
		check func(*Check)
		fails string
	}{
		"good":                   {chain: []*x509.Certificate{good, middle.cert}},
		"good-without-middle":    {chain: []*x509.Certificate{root.issue(t, leafTemplate(), key).cert}},
		"wrong-key":              {chain: []*x509.Certificate{middle.issue(t, leafTemplate(), mustKey(t, "")).cert, middle.cert}, fails: "key"},
		"leaf-ca-true":           {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.IsCA = true; c.KeyUsage |= x509.KeyUsageCertSign }), middle.cert}, fails: "ca"},
		"leaf-key-cert-sign":     {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }), middle.cert}, fails: "ca"},
		"leaf-crl-sign":          {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }), middle.cert}, fails: "ca"},
		"leaf-no-signature":      {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement }), middle.cert}, fails: "usage"},
		"leaf-code-signing":      {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }), middle.cert}, fails: "usage"},
		"other-name":             {chain: []*x509.Certificate{leaf(otherName), middle.cert}, fails: "names"},
		"other-name-by-domain":   {chain: []*x509.Certificate{leaf(otherName), middle.cert}, check: func(c *Check) { c.Names = TrustDomainName }},
		"other-domain":           {chain: []*x509.Certificate{leaf(otherDomain), middle.cert}, check: func(c *Check) { c.Names = TrustDomainName }, fails: "names"},
		"other-domain-any":       {chain: []*x509.Certificate{leaf(otherDomain), middle.cert}, check: func(c *Check) { c.Names = AnyName }},
		"one-name-more":          {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.DNSNames = []string{"x.example"} }), middle.cert}, fails: "names"},
		"two-uris":               {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) }), middle.cert}, fails: "names"},
		"root-in-chain":          {chain: []*x509.Certificate{good, middle.cert, root.cert}},
		"wrong-order":            {chain: []*x509.Certificate{good, stranger.issue(t, caTemplate("x"), mustKey(t, "")).cert, middle.cert}},
		"issuer-missing":         {chain: []*x509.Certificate{good}, fails: "chain"},
		"unknown-root":           {chain: []*x509.Certificate{stranger.issue(t, leafTemplate(), key).cert}, fails: "chain"},
		"expired":                {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }), middle.cert}, fails: "expired"},
		"ends-before-it-begins":  {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(3*time.Minute), now.Add(2*time.Minute) }), middle.cert}, fails: "expired"},
		"begins-in-four-minutes": {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotBefore = now.Add(4 * time.Minute) }), middle.cert}},
		"begins-in-six-minutes":  {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotBefore = now.Add(6 * time.Minute) }), middle.cert}, fails: "not-before"},
		"four-minutes-too-long":  {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(64 * time.Minute) }), middle.cert}},
		"six-minutes-too-long":   {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(66 * time.Minute) }), middle.cert}, fails: "not-after"},
		"longer-accepted":        {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(99 * time.Hour) }), middle.cert}, check: func(c *Check) { c.AcceptLonger = true }},
		"no-lifetime-was-asked":  {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(99 * time.Hour) }), middle.cert}, check: func(c *Check) { c.AskedUntil = time.Time{} }},
		"empty-roots":            {chain: []*x509.Certificate{good, middle.cert}, check: func(c *Check) { c.Roots = nil }, fails: "roots"},
		"reverse-order":          {chain: []*x509.Certificate{root.cert, middle.cert, good}},
		"sixty-five":             {chain: append([]*x509.Certificate{good}, manyOf(middle.cert, 64)...), fails: "format"},
		"eleven-on-the-path":     {chain: long, fails: "format"},
		"common-name-of-another": {chain: named(pkix.Name{CommonName: "db.example.org"}), fails: "names"},
		"common-name-by-domain":  {chain: named(pkix.Name{CommonName: "db.example.org"}), check: func(c *Check) { c.Names = TrustDomainName }, fails: "names"},
		"common-name-any":        {chain: named(pkix.Name{CommonName: "db.example.org"}), check: func(c *Check) { c.Names = AnyName }},
		"common-name-requested":  {chain: named(pkix.Name{CommonName: "spiffe://example.org/web"})},
		"common-name-is-the-id":  {chain: named(pkix.Name{CommonName: "0b7e"}), check: func(c *Check) { c.RequestID = "0b7e" }},
		"organization":           {chain: named(pkix.Name{Organization: []string{"Example"}, Country: []string{"CH"}})},
		"group-of-kubernetes":    {chain: named(pkix.Name{Organization: []string{"Example", "System:masters"}}), check: func(c *Check) { c.Names = AnyName }, fails: "names"},
		"empty-fragment":         {chain: withNames(tagURI, "spiffe://example.org/web#"), fails: "names"},
		"upper-case-scheme":      {chain: withNames(tagURI, "SPIFFE://example.org/web"), fails: "names"},
		"registered-id":          {chain: withNames(8, "\x2a\x03\x04"), fails: "names"},
		"directory-name":         {chain: withNames(4, "\x30\x00"), fails: "names"},
		"other-name-form":        {chain: withNames(0, "\x06\x03\x2a\x03\x04\xa0\x02\x05\x00"), fails: "names"},
		"other-name-form-any":    {chain: withNames(0, "\x06\x03\x2a\x03\x04\xa0\x02\x05\x00"), check: func(c *Check) { c.Names = AnyName }},
		"address-as-dns-name":    {chain: []*x509.Certificate{leaf(func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"10.0.0.1"} }), middle.cert}, fails: "names"},
		"roots-of-another-ca":    {chain: []*x509.Certificate{good, middle.cert}, check: func(c *Check) { c.Roots = NewBundle(stranger.cert) }, fails: "chain"},
	} {
		t.Run(name, func(t *testing.T) {
			check := Check{Key: key.Public(), Identity: mustIdentity(t, "spiffe://example.org/web", nil, nil),
				Roots: NewBundle(root.cert), Now: now, AskedUntil: now.Add(time.Hour)}
			if c.check != nil {
				c.check(&check)
			}
			chain, err := check.Chain(EncodeCertificates(c.chain))
			if c.fails == "" {
				if err != nil {
					t.Fatal(err)
				}
				if !chain.Root.Equal(root.cert) || !SameKey(chain.Leaf.PublicKey, key.Public()) {
					t.Errorf("leaf %v, root %v", chain.Leaf.Subject, chain.Root.Subject)
				}
				return
			}
			var failure *CheckError
			if !errors.As(err, &failure) || failure.Check != c.fails {
				t.Errorf("got %v, want the check %q to fail", err, c.fails)
			}
		})
	}
}

func TestNonPEMReplyFailsFormatCheck(t *testing.T) {
	for _, text := range []string{"", "no pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", strings.Repeat("x", MaxPEM+1)} {
		_, err := Check{}.Chain([]byte(text))
		var failure *CheckError
		if !errors.As(err, &failure) || failure.Check != "format" {
			t.Errorf("got %v for %.20q…", err, text)
		}
	}
}

func TestBundleIsASetOfSelfSignedCAs(t *testing.T) {
	a := (*issuer)(nil).issue(t, caTemplate("a"), mustKey(t, ""))
	b := (*issuer)(nil).issue(t, caTemplate("b"), mustKey(t, ""))
	one, two := NewBundle(a.cert, b.cert, a.cert), NewBundle(b.cert, a.cert)
	if !one.Equal(two) || !bytes.Equal(one.PEM(), two.PEM()) || one.Len() != 2 {
		t.Error("the same roots in another order are another bundle")
	}
	if parsed, err := ParseBundle(one.PEM()); err != nil || !parsed.Equal(one) {
		t.Errorf("read back: %v", err)
	}
	if rest := one.Filter(func(c *x509.Certificate) bool { return !c.Equal(a.cert) }); rest.Contains(a.cert) || rest.Len() != 1 {
		t.Error("the filter kept what it should not")
	}
	if !(*Bundle)(nil).Union(one).Equal(one) {
		t.Error("a union with nothing is another bundle")
	}
}

func TestInvalidRootIsRefusedWithFingerprint(t *testing.T) {
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	noCA := caTemplate("no-ca")
	noCA.IsCA, noCA.KeyUsage = false, x509.KeyUsageDigitalSignature
	noSign := caTemplate("no-cert-sign")
	noSign.KeyUsage = x509.KeyUsageCRLSign
	for name, cert := range map[string]*x509.Certificate{
		"no-ca.pem":        (*issuer)(nil).issue(t, noCA, mustKey(t, "")).cert,
		"no-cert-sign.pem": (*issuer)(nil).issue(t, noSign, mustKey(t, "")).cert,
		"intermediate.pem": root.issue(t, caTemplate("middle"), mustKey(t, "")).cert,
	} {
		_, err := ParseBundle(EncodeCertificates([]*x509.Certificate{root.cert, cert}))
		if err == nil || !strings.Contains(err.Error(), Fingerprint(cert)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func manyOf(cert *x509.Certificate, n int) []*x509.Certificate {
	certs := make([]*x509.Certificate, n)
	for i := range certs {
		certs[i] = cert
	}
	return certs
}
