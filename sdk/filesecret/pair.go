package filesecret

import (
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Authority is the Authority of every [secret.Item] from files.
const Authority = "mounted files"

const authority = Authority

// reader reads a file or refuses to.
type reader func(path string) ([]byte, error)

// readPair reads a chain and its key. It rejects a key that does not match the leaf and a
// certificate that is expired or not yet valid: while two files are being replaced, one is
// old and one is new for a moment.
func readPair(spec Spec, read reader, now time.Time) (*secret.Item, error) {
	if spec.Key == spec.Chain {
		read = once(read)
	}
	certs, err := readChain(spec, read)
	if err != nil {
		return nil, err
	}
	key, err := read(spec.Key)
	if err != nil {
		return nil, err
	}
	item, err := secret.NewKeyPair(spec.Name, authority, pki.EncodeCertificates(certs), key)
	if err != nil {
		return nil, fmt.Errorf("%s with the chain %s: %w", spec.Key, spec.Chain, err)
	}
	if err := checkTimes(certs[0], spec.Chain, now); err != nil {
		return nil, err
	}
	return item, nil
}

// once returns a reader of one file that opens it once, so that what is read twice is the same
// version.
func once(read reader) reader {
	var text []byte
	var err error
	var first sync.Once
	return func(path string) ([]byte, error) {
		first.Do(func() { text, err = read(path) })
		return text, err
	}
}

// readChain returns the certificates of a chain, whose file may hold its key, too.
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
