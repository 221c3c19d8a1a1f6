package rest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	maxFile = 1 << 20
	// SystemRoots in the place of a file means the operating system's roots.
	SystemRoots = "SYSTEM"
)

// Roots returns the roots for a connection; nil are the operating system's.
type Roots func() (*x509.CertPool, error)

// RootFile is the roots in a PEM file, or with [SystemRoots] or "" those of the
// operating system. What is in the file is trusted, an intermediate, too.
func RootFile(path string) Roots {
	if path == "" || path == SystemRoots {
		return nil
	}
	return func() (*x509.CertPool, error) {
		text, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
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
}

// Pair is a client certificate in files: PEM, the leaf first, and its key. The zero
// value is none.
type Pair struct{ CertFile, KeyFile string }

func (p Pair) or(other Pair) Pair {
	if p == (Pair{}) {
		return other
	}
	return p
}

// Check says what is wrong with the names of the files, which stand in the settings
// certSetting and keySetting. The error is of the reason [ca.Invalid].
func (p Pair) Check(certSetting, keySetting string) error {
	if (p.CertFile == "") == (p.KeyFile == "") {
		return nil
	}
	return ca.Errorf(ca.Invalid, "%s is %q and %s is %q: set both or neither", certSetting, p.CertFile, keySetting, p.KeyFile)
}

// Read returns the pair, which belongs together and has not expired. Its errors quote
// nothing of the key.
func (p Pair) Read(now time.Time) (*tls.Certificate, error) {
	chain, err := ReadFile(p.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := ReadFile(p.KeyFile)
	if err != nil {
		return nil, err
	}
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.CertFile, err)
	}
	signer, err := pki.ParseKey(key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.KeyFile, err)
	case !pki.SameKey(signer.Public(), certs[0].PublicKey):
		return nil, fmt.Errorf("%s is not the key of %s", p.KeyFile, p.CertFile)
	case now.After(certs[0].NotAfter):
		return nil, fmt.Errorf("%s expired at %s", p.CertFile, certs[0].NotAfter.UTC().Format(time.RFC3339))
	}
	pair := &tls.Certificate{PrivateKey: signer, Leaf: certs[0]}
	for _, cert := range certs {
		pair.Certificate = append(pair.Certificate, cert.Raw)
	}
	return pair, nil
}

// transport is for one call, so that what its files hold is what counts.
func (c *Client) transport(pair Pair) (*http.Transport, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.config.ServerName}
	if c.config.Roots != nil {
		roots, err := c.config.Roots()
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "the roots to verify %s with: %w", c.Host(), err)
		}
		settings.RootCAs = roots
	}
	if pair != (Pair{}) {
		certificate, err := pair.Read(time.Now())
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "the client certificate for %s: %w", c.Host(), err)
		}
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return &http.Transport{
		TLSClientConfig: settings, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// ReadFile reads a regular file of 1 MiB at most.
func ReadFile(path string) ([]byte, error) {
	// Asked before it is opened: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return content, err
}
