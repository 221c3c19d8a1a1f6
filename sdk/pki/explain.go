package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// explain returns why crypto/x509 refuses a chain, with the certificate that is to blame.
func (c Check) explain(chain *Chain, err error) string {
	reason := c.blame(chain, err)
	if len(chain.unusable) > 0 {
		reason += "; left out: " + chain.unusable[0].Error()
	}
	return reason
}

func (c Check) blame(chain *Chain, err error) string {
	for _, cert := range c.issuers(chain) {
		if lack := lacking(cert.Raw); lack != nil {
			return fmt.Sprintf("%s %v", nameOf(cert), lack)
		}
		if len(cert.UnhandledCriticalExtensions) > 0 {
			return fmt.Sprintf("%s has the critical extension %s, which Go's crypto/x509 does not support", nameOf(cert), extensionName(cert.UnhandledCriticalExtensions[0]))
		}
	}
	reason := text.Clean(strings.TrimPrefix(err.Error(), "x509: "))
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return nameOf(invalid.Cert) + ": " + reason
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		return nameOf(unknown.Cert) + ": " + reason
	}
	return reason
}

// issuers returns the leaf and all that may be above it, by name.
func (c Check) issuers(chain *Chain) []*x509.Certificate {
	way := []*x509.Certificate{chain.Leaf}
	all := slices.Concat(chain.sent, c.Roots.Certificates())
	for i := 0; i < len(way); i++ {
		for _, cert := range all {
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
	"2.5.29.30": "name constraints other than DNS, IP, e-mail and URI, such as dirName",
	"2.5.29.33": "policy mappings",
	"2.5.29.36": "policy constraints",
	"2.5.29.54": "inhibit any-policy",
}
