package pki

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

func rootWith(t *testing.T, key *rsa.PublicKey) []byte {
	t.Helper()
	return block("CERTIFICATE", certtest.Costly(t, key))
}

func TestExpensiveKeyIsRefusedBeforeAnySignature(t *testing.T) {
	for want, key := range map[string]*rsa.PublicKey{
		"an RSA key of 8193 bits":   certtest.CostlyKey(8193, 65537),
		"an RSA key of 300000 bits": certtest.CostlyKey(300_000, 65537),
		"a public exponent of more": certtest.CostlyKey(2048, 1<<32+1),
	} {
		text := rootWith(t, key)
		if _, err := ParseCertificates(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, as a chain: %v", want, err)
		}
		if _, err := ParseBundle(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, as a root: %v", want, err)
		}
	}
	if _, err := ParseCertificates(rootWith(t, certtest.CostlyKey(8192, 1<<32-1))); err != nil {
		t.Errorf("the largest key that is allowed: %v", err)
	}
}

// forged claims a key that it does not have.
type forged struct{ key *rsa.PublicKey }

func (f forged) Public() crypto.PublicKey { return f.key }

func (f forged) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return make([]byte, f.key.Size()), nil
}

func TestCSRWithExpensiveKeyIsRefusedBeforeSignature(t *testing.T) {
	text, err := CreateCSR(forged{certtest.CostlyKey(16_384, 65537)}, mustIdentity(t, "spiffe://example.org/web", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCSR(text); err == nil || !strings.Contains(err.Error(), "an RSA key of 16384 bits") {
		t.Error(err)
	}
}

// padded gives a template an extension of so many bytes.
func padded(template *x509.Certificate, size int) *x509.Certificate {
	template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}, Value: make([]byte, size)}}
	return template
}

func TestOversizedChainIsRefused(t *testing.T) {
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	middle := root.issue(t, padded(caTemplate("middle"), 60<<10), mustKey(t, ""))
	key := mustKey(t, "")
	for name, c := range map[string]struct {
		by   *issuer
		size int
		want string
	}{
		"a leaf of 600 KB":    {root, 600_000, "102400 are allowed"},
		"a chain of 120 KiB":  {middle, 60 << 10, "peers read no more"},
		"a chain of 90 KiB":   {middle, 30 << 10, ""},
		"an ordinary profile": {root, 100, ""},
	} {
		leaf := c.by.issue(t, padded(leafTemplate(), c.size), key).cert
		chain := []*x509.Certificate{leaf}
		if c.by == middle {
			chain = append(chain, middle.cert)
		}
		check := Check{Key: key.Public(), Names: AnyName, Roots: NewBundle(root.cert), Now: now}
		_, err := check.Chain(EncodeCertificates(chain))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}
