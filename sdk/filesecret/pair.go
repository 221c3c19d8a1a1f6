package filesecret

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Authority is the Authority of every [secret.Item] from files.
const Authority = "mounted files"

const authority = Authority

// maxChain is the maximum number of certificates in a chain, as in package pki.
const maxChain = 10

// reader reads a file or refuses to.
type reader func(path string) ([]byte, error)

// readPair reads a chain and its key. It rejects a key that does not match the leaf and a
// certificate that is expired or not yet valid: while two files are being replaced, one is
// old and one is new for a moment.
func readPair(spec Spec, read reader, now time.Time) (*secret.Item, error) {
	certs, err := readChain(spec, read)
	if err != nil {
		return nil, err
	}
	text, err := read(spec.Key)
	if err != nil {
		return nil, err
	}
	key, err := pki.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Key, err)
	}
	leaf := certs[0]
	if !pki.SameKey(key.Public(), leaf.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of the first certificate in %s", spec.Key, spec.Chain)
	}
	if err := checkTimes(leaf, spec.Chain, now); err != nil {
		return nil, err
	}
	encoded, err := pki.EncodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Key, err)
	}
	return pairItem(spec.Name, certs, encoded), nil
}

// readChain returns the leaf and the intermediates. It drops a trailing root: a verifier
// either has it already or must not trust it.
func readChain(spec Spec, read reader) ([]*x509.Certificate, error) {
	path, parse := spec.Chain, pki.ParseCertificates
	if spec.Key == path {
		parse = pki.ParseCertificatesBesideKey
	}
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	certs, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(certs) > maxChain {
		return nil, fmt.Errorf("%s has %d certificates, %d are allowed in a chain", path, len(certs), maxChain)
	}
	for len(certs) > 1 && pki.SelfSigned(certs[len(certs)-1]) {
		certs = certs[:len(certs)-1]
	}
	return certs, nil
}

func checkTimes(leaf *x509.Certificate, path string, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate in %s ended at %s", path, clock.Stamp(leaf.NotAfter))
	case leaf.NotBefore.After(now):
		return fmt.Errorf("the certificate in %s begins at %s", path, clock.Stamp(leaf.NotBefore))
	}
	return nil
}

func pairItem(name string, certs []*x509.Certificate, key []byte) *secret.Item {
	leaf, chain := certs[0], pki.EncodeCertificates(certs)
	// Serve a leaf even if its names are not a valid identity: the operator chose it.
	identity, _ := pki.IdentityOf(leaf)
	return &secret.Item{
		Name: name, Kind: secret.KeyPair, Version: version.Of(chain), Chain: chain, Key: key,
		Identity: identity, Serial: leaf.SerialNumber.Text(16), Fingerprint: pki.Fingerprint(leaf),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Authority: authority,
	}
}
