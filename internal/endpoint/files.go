package endpoint

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const maxFile = 1 << 20

// ReadRoots reads the roots in a PEM file of 1 MiB at most. What is in the file is
// trusted, an intermediate, too.
func ReadRoots(path string) (*x509.CertPool, error) {
	text, err := safefile.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	return parseRoots(path, text)
}

func parseRoots(path string, text []byte) (*x509.CertPool, error) {
	certs, err := pki.ParseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pool := x509.NewCertPool()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	return pool, nil
}

// ReadPair reads a client certificate, PEM with the leaf first, and its key, which
// belong together and have not expired. Its errors do not quote the key.
func ReadPair(certFile, keyFile string, now time.Time) (*tls.Certificate, error) {
	chain, err := safefile.Read(certFile, maxFile)
	if err != nil {
		return nil, err
	}
	key, err := safefile.Read(keyFile, maxFile)
	if err != nil {
		return nil, err
	}
	parse := pki.ParseCertificates
	if certFile == keyFile {
		parse = pki.ParseCertificatesBesideKey
	}
	certs, err := parse(chain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	signer, err := pki.ParseKey(key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	case !pki.SameKey(signer.Public(), certs[0].PublicKey):
		return nil, fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	case now.After(certs[0].NotAfter):
		return nil, fmt.Errorf("%s expired at %s", certFile, clock.Stamp(certs[0].NotAfter))
	}
	pair := &tls.Certificate{PrivateKey: signer, Leaf: certs[0]}
	for _, cert := range certs {
		pair.Certificate = append(pair.Certificate, cert.Raw)
	}
	return pair, nil
}
