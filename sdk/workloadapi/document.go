package workloadapi

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// document is a secret in the protocol's form, DER.
type document struct {
	version string    // of the item
	id      string    // the SPIFFE ID; key pairs only
	domain  string    // the SPIFFE ID of its trust domain, as in "spiffe://example.org"; key pairs only
	certs   []byte    // concatenated DER
	crls    [][]byte  // revocation lists in DER; trust bundles only
	key     []byte    // PKCS #8; key pairs only
	ends    time.Time // of the whole chain; key pairs only
}

// documents caches one document per version of a secret, shared by all streams.
type documents struct {
	made sync.Map // weak.Pointer[secret.Item] to result
}

type result struct {
	document *document
	err      error
}

// of returns the document of an item and whether it was created by this call.
func (d *documents) of(item *secret.Item) (r result, first bool) {
	key := weak.Make(item)
	if known, ok := d.made.Load(key); ok {
		return known.(result), false
	}
	r.document, r.err = newDocument(item)
	if _, there := d.made.LoadOrStore(key, r); there {
		return r, false
	}
	// The entry is removed once the item is garbage collected.
	runtime.AddCleanup(item, func(key weak.Pointer[secret.Item]) { d.made.Delete(key) }, key)
	return r, true
}

func newDocument(item *secret.Item) (*document, error) {
	if item.Kind == secret.TrustBundle {
		certs, err := pki.ParseCertificates(item.Roots)
		if err != nil {
			return nil, err
		}
		return &document{version: item.Version, certs: der(certs), crls: derOf(item.CRLs)}, nil
	}
	chain, err := pki.ParseCertificates(item.Chain)
	if err != nil {
		return nil, err
	}
	d := &document{version: item.Version, certs: der(chain), ends: item.NotAfter}
	if d.ends.IsZero() {
		d.ends = chain[0].NotAfter
	}
	if d.id, d.domain, err = spiffeID(chain[0]); err != nil {
		return nil, err
	}
	key, err := item.KeyPEM()
	if err != nil {
		return nil, err
	}
	d.key, err = keyDER(key)
	return d, err
}

// derOf returns the contents of PEM blocks.
func derOf(text []byte) (all [][]byte) {
	for block, err := range pki.Blocks(text) {
		if err == nil { // the agent wrote them
			all = append(all, block.Bytes)
		}
	}
	return all
}

// spiffeID returns the SPIFFE ID of a leaf and that of its trust domain.
func spiffeID(leaf *x509.Certificate) (id, domain string, err error) {
	if len(leaf.URIs) != 1 {
		return "", "", fmt.Errorf("the certificate names %d URIs; the Workload API needs one SPIFFE ID", len(leaf.URIs))
	}
	u, err := pki.ParseSPIFFEID(leaf.URIs[0].String())
	if err != nil {
		return "", "", err
	}
	return u.String(), "spiffe://" + u.Host, nil
}

func keyDER(text []byte) ([]byte, error) {
	key, err := pki.ParseKey(text)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, errors.New("the key cannot be written as PKCS #8") // the underlying error may quote the key
	}
	return der, nil
}

func der(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		out.Write(cert.Raw)
	}
	return out.Bytes()
}
