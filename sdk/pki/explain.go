package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/internal/text"
)

// Explain returns the error of leaf.Verify with the certificate that is to blame and the extension
// or the algorithm: crypto/x509 names neither. others are the intermediates and roots that the leaf
// was verified with. It is nil for nil.
func Explain(err error, leaf *x509.Certificate, others ...*x509.Certificate) error {
	if err == nil {
		return nil
	}
	return explained{blame(err, leaf, others), err}
}

type explained struct {
	text string
	err  error
}

func (e explained) Error() string { return e.text }
func (e explained) Unwrap() error { return e.err }

func blame(err error, leaf *x509.Certificate, others []*x509.Certificate) string {
	for _, cert := range above(leaf, others) {
		if lack := lacking(cert.Raw); lack != nil {
			return fmt.Sprintf("%s %v", nameOf(cert), lack)
		}
		if len(cert.UnhandledCriticalExtensions) > 0 {
			return fmt.Sprintf("%s has the critical extension %s, which Go's crypto/x509 does not support", nameOf(cert), extensionName(cert.UnhandledCriticalExtensions[0]))
		}
	}
	reason := text.Clean(err.Error())
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return nameOf(invalid.Cert) + ": " + reason
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		return nameOf(unknown.Cert) + ": " + reason
	}
	return reason
}

// above returns the leaf and all that may have issued it, by name.
func above(leaf *x509.Certificate, others []*x509.Certificate) []*x509.Certificate {
	way := []*x509.Certificate{leaf}
	for i := 0; i < len(way); i++ {
		for _, cert := range others {
			if bytes.Equal(cert.RawSubject, way[i].RawIssuer) && !slices.Contains(way, cert) {
				way = append(way, cert)
			}
		}
	}
	return way
}

func extensionName(oid asn1.ObjectIdentifier) string {
	if known, ok := extensionNames[oid.String()]; ok {
		return fmt.Sprintf("%s (%s)", oid, known)
	}
	return oid.String()
}

var extensionNames = map[string]string{
	"2.5.29.9":  "subject directory attributes",
	"2.5.29.30": "name constraints, such as dirName",
	"2.5.29.33": "policy mappings",
	"2.5.29.36": "policy constraints",
	"2.5.29.54": "inhibit any-policy",
}
