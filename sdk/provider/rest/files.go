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
	return func() (*x509.CertPool, error) { return endpoint.ReadRoots(path) }
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
	return endpoint.ReadPair(p.CertFile, p.KeyFile, now)
}

// ReadFile reads a regular file of 1 MiB at most.
func ReadFile(path string) ([]byte, error) { return safefile.Read(path, maxFile) }
