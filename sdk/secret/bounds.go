package secret

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// What is served has to stay below what our own readers take: pki.MaxCertificates and
// pki.MaxPEM. An authority has the roots that it tells, those of its last reply and those
// that it dropped.
const (
	maxRoots     = 250 // of one set
	maxRootsSize = 192 << 10
	maxDropped   = 100 // however often an authority changes its set
	maxShown     = 3   // in a log line of their own
)

// parseRoots parses one set of roots, without those that are of no use. It counts first: to check one root takes about
// 0.1 ms.
func parseRoots(pemBytes []byte) (roots *pki.Bundle, unusable []error, err error) {
	if n := bytes.Count(pemBytes, []byte("-----BEGIN")); n > maxRoots {
		return nil, nil, &pki.CheckError{Check: "roots", Detail: fmt.Sprintf("there are %d, %d are allowed", n, maxRoots)}
	}
	if roots, unusable, err = pki.UsableBundle(pemBytes); err != nil {
		return nil, nil, &pki.CheckError{Check: "roots", Detail: err.Error()}
	}
	if n := roots.Len() + len(unusable); n > maxRoots { // UTF-16, which has another BEGIN
		return nil, nil, &pki.CheckError{Check: "roots", Detail: fmt.Sprintf("there are %d, %d are allowed", n, maxRoots)}
	}
	if size := sizeOf(roots.Certificates()); size > maxRootsSize {
		return nil, nil, &pki.CheckError{Check: "roots", Detail: fmt.Sprintf("they have %d bytes, %d are allowed", size, maxRootsSize)}
	}
	return roots, unusable, nil
}

func sizeOf(certs []*x509.Certificate) (size int) {
	for _, cert := range certs {
		size += len(cert.Raw)
	}
	return size
}

// merge returns the union of what several authorities serve. If that is more than readers
// take, each has an equal share, so that none crowds out another.
func merge(parts []*pki.Bundle) (all *pki.Bundle) {
	for _, part := range parts {
		all = all.Union(part)
	}
	if readable(all, 1) {
		return all
	}
	all = nil
	for _, part := range parts {
		certs := part.Certificates()
		for len(certs) > 0 && !readable(pki.NewBundle(certs...), len(parts)) {
			certs = certs[:len(certs)*9/10]
		}
		all = all.Union(pki.NewBundle(certs...))
	}
	return all
}

func readable(roots *pki.Bundle, shares int) bool {
	return roots.Len() <= pki.MaxCertificates/shares && len(roots.PEM()) <= pki.MaxPEM/shares
}

// logRoots logs each root of a few, and many in one line.
func (a *authority) logRoots(one, many string, certs []*x509.Certificate) {
	if len(certs) > maxShown {
		a.log.Info(many, "count", len(certs), "fingerprints", shortPrints(certs))
		return
	}
	for _, cert := range certs {
		a.log.Info(one, rootAttrs(cert)...)
	}
}

// shortPrints returns the beginnings of the fingerprints.
func shortPrints(certs []*x509.Certificate) string {
	prints := make([]string, len(certs))
	for i, cert := range certs {
		prints[i] = pki.Fingerprint(cert)[:16]
	}
	return strings.Join(prints, " ")
}
