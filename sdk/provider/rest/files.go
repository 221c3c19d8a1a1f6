package rest

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	maxFile = 1 << 20
	// SystemRoots in place of a file name means the roots of the operating system.
	SystemRoots = "SYSTEM"
)

// Roots returns the roots that verify a server. It is called for each connection, from any
// goroutine. A nil Roots means the roots of the operating system.
type Roots func() (*x509.CertPool, error)

// RootFile returns the roots in a PEM file of at most 1 MiB, or for [SystemRoots] or "" those
// of the operating system. Every certificate in the file is trusted, even an intermediate.
func RootFile(path string) Roots {
	if path == "" || path == SystemRoots {
		return nil
	}
	return func() (*x509.CertPool, error) { return endpoint.ReadRoots(path) }
}

// Pair is a client certificate in files: a PEM chain with the leaf first, and its PEM key.
// The zero value is none.
type Pair struct{ CertFile, KeyFile string }

func (p Pair) or(other Pair) Pair {
	if p == (Pair{}) {
		return other
	}
	return p
}

// Check returns an error with the reason [ca.Invalid] if only one of the files is set. It
// names the settings of the two.
func (p Pair) Check(certSetting, keySetting string) error {
	if (p.CertFile == "") == (p.KeyFile == "") {
		return nil
	}
	return ca.Errorf(ca.Invalid, "%s is %q and %s is %q: set both or neither", certSetting, p.CertFile, keySetting, p.KeyFile)
}

// Read reads both files, of at most 1 MiB each. It fails if the key does not belong to the
// leaf, or the leaf has expired at now. Errors quote nothing of the key.
func (p Pair) Read(now time.Time) (*tls.Certificate, error) {
	return endpoint.ReadPair(p.CertFile, p.KeyFile, now)
}

// ReadFile reads a regular file of at most 1 MiB. It does not wait at a named pipe.
func ReadFile(path string) ([]byte, error) { return safefile.Read(path, maxFile) }
