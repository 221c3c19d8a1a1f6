package status

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Term is the lifetime of the CA certificate that ends first above a certificate.
type Term struct {
	Subject   string    `json:"subject"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

// EndsOf returns for each held key pair which CA certificate above it ends first: one of its chain,
// or its root, where a bundle has it. One of an unknown end is left out.
func EndsOf(all []secret.Status) map[string]Term {
	roots, ends := rootsOf(all), map[string]Term{}
	for _, s := range all {
		if s.Item == nil || s.Item.Kind != secret.KeyPair {
			continue
		}
		above := []Term{roots[s.Item.RootFingerprint]}
		if chain, err := pki.ParseCertificates(s.Item.Chain); err == nil {
			for _, cert := range chain[1:] {
				above = append(above, Term{clean(cert.Subject.String()), cert.NotBefore, cert.NotAfter})
			}
		}
		if first := earliest(above); !first.NotAfter.IsZero() {
			ends[s.Name] = first
		}
	}
	return ends
}

// rootsOf returns the roots of all bundles by fingerprint.
func rootsOf(all []secret.Status) map[string]Term {
	roots := map[string]Term{}
	for _, s := range all {
		if s.Item == nil || s.Item.Kind != secret.TrustBundle {
			continue
		}
		certs, err := pki.ParseCertificates(s.Item.Roots)
		if err != nil {
			continue // unreachable: they were parsed before
		}
		for _, cert := range certs {
			roots[pki.Fingerprint(cert)] = Term{clean(cert.Subject.String()), cert.NotBefore, cert.NotAfter}
		}
	}
	return roots
}

func earliest(all []Term) (first Term) {
	for _, t := range all {
		if !t.NotAfter.IsZero() && (first.NotAfter.IsZero() || t.NotAfter.Before(first.NotAfter)) {
			first = t
		}
	}
	return first
}

// cut reports that the CA's end cuts a certificate short: it ends with it, within a minute.
func (t Term) cut(i *secret.Item) bool {
	return !t.NotAfter.IsZero() && !i.NotAfter.Before(t.NotAfter.Add(-time.Minute))
}
