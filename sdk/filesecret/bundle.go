package filesecret

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// readBundle reads trust anchors from a file. It skips invalid ones and describes them in
// skipped; if none is left, it returns an error.
func readBundle(spec Spec, read reader, now time.Time) (item *secret.Item, skipped []string, err error) {
	text, err := read(spec.Roots)
	if err != nil {
		return nil, nil, err
	}
	roots, skipped, err := parseRoots(text, now)
	if err != nil {
		return nil, skipped, fmt.Errorf("%s: %w", spec.Roots, err)
	}
	return secret.NewTrustBundle(spec.Name, authority, roots), skipped, nil
}

func parseRoots(text []byte, now time.Time) (roots *pki.Bundle, skipped []string, err error) {
	var good []*x509.Certificate
	certs, unusable, err := pki.UsableCertificates(text)
	for _, fault := range unusable {
		skipped = append(skipped, fault.Error())
	}
	if err != nil {
		return nil, skipped, err
	}
	for _, cert := range certs {
		if fault := rootFault(cert, now); fault != "" {
			skipped = append(skipped, fault)
			continue
		}
		good = append(good, cert)
	}
	if len(good) == 0 {
		return nil, skipped, errors.New("it holds no CA certificate that is valid now")
	}
	return pki.NewBundle(good...), skipped, nil
}

// rootFault returns why a certificate cannot verify a peer. It accepts one that is not
// self-signed: the operator may trust an intermediate.
func rootFault(cert *x509.Certificate, now time.Time) string {
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return fmt.Sprintf("%.128q is not a CA certificate", cert.Subject.String())
	case now.After(cert.NotAfter):
		return fmt.Sprintf("%.128q ended at %s", cert.Subject.String(), clock.Stamp(cert.NotAfter))
	}
	return ""
}
