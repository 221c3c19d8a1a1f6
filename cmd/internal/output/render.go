package output

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// render returns the content of a file.
func (w *writer) render(file File, s set) ([]byte, error) {
	switch file.Content {
	case Chain:
		return s.pair.Chain, nil
	case Key:
		return s.pair.KeyPEM()
	case Roots:
		return s.roots(file.domain).Roots, nil
	case CRL:
		if len(s.bundle.CRLs) == 0 {
			return nil, fmt.Errorf("the trust bundle %.256q has no revocation list", s.bundle.Name) // no server starts with an empty file
		}
		return s.bundle.CRLs, nil
	case Combined:
		key, err := s.pair.KeyPEM()
		return append(bytes.Clone(key), s.pair.Chain...), err
	}
	password, err := w.Password()
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	switch file.Content {
	case PKCS12:
		return keyStore(s, password)
	case PKCS12Roots:
		return trustStore(s, password)
	}
	return jksTrustStore(s, password)
}

// roots returns the bundle of a foreign trust domain, or of the output for "".
func (s set) roots(domain string) *secret.Item {
	if domain != "" {
		return s.foreign[domain]
	}
	return s.bundle
}

func keyStore(s set, password string) ([]byte, error) {
	certs, err := pki.ParseCertificates(s.pair.Chain)
	if err != nil {
		return nil, err
	}
	text, err := s.pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	key, err := pki.ParseKey(text)
	if err != nil {
		return nil, err
	}
	return pkcs12.Modern.Encode(key, certs[0], certs[1:], password)
}

func trustStore(s set, password string) ([]byte, error) {
	roots, err := pki.ParseCertificates(s.bundle.Roots)
	if err != nil {
		return nil, err
	}
	entries := make([]pkcs12.TrustStoreEntry, len(roots))
	for i, root := range roots {
		entries[i] = pkcs12.TrustStoreEntry{Cert: root, FriendlyName: alias(root)}
	}
	return pkcs12.Modern.EncodeTrustStoreEntries(entries, password)
}

func jksTrustStore(s set, password string) ([]byte, error) {
	const least = 6
	if len(password) < least {
		return nil, errors.New("a Java truststore has a password of at least 6 bytes")
	}
	roots, err := pki.ParseCertificates(s.bundle.Roots)
	if err != nil {
		return nil, err
	}
	store := keystore.New(keystore.WithOrderedAliases())
	for _, root := range roots {
		// Use the root's own time, so that the same roots give the same file.
		entry := keystore.TrustedCertificateEntry{CreationTime: root.NotBefore.Truncate(time.Second), Certificate: keystore.Certificate{Type: "X509", Content: root.Raw}}
		if err := store.SetTrustedCertificateEntry(alias(root), entry); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	if err := store.Store(&out, []byte(password)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// alias names a root in a store, in lower case, as Java converts it.
func alias(root *x509.Certificate) string { return "root-" + pki.Fingerprint(root)[:16] }
