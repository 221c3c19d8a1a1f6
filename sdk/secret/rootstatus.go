package secret

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Root is what an operator may see of one root of a trust bundle.
type Root struct {
	Fingerprint string    `json:"fingerprint"` // lower-case hex SHA-256 of the DER
	Subject     string    `json:"subject"`     // bounded and escaped
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
	// Authorities are the configured names of the authorities it came from.
	Authorities []string `json:"authorities"`
	// KeptUntil is when a dropped root will be removed; zero while an authority names it.
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// Restored reports that the root comes from the last run and its authority has
	// published no roots since; see [Storage].
	Restored bool `json:"restored,omitempty"`
}

// show records the authority's served roots for the status.
func (a *authority) show(served *pki.Bundle) {
	roots := make([]Root, 0, served.Len())
	for _, cert := range served.Certificates() {
		print := pki.Fingerprint(cert)
		roots = append(roots, Root{
			Fingerprint: print, Subject: text.Clean(cert.Subject.String()), NotBefore: cert.NotBefore, NotAfter: cert.NotAfter,
			Authorities: []string{a.Name}, KeptUntil: clock.Earlier(a.roots.dropped[print].until, cert.NotAfter), Restored: a.roots.dropped[print].restored,
		})
	}
	a.shown.Store(&roots)
}

// roots merges the roots of all authorities. A root that any of them still names is not
// dropped.
func (b bound) roots() []Root {
	var all []Root
	for _, a := range b.sources {
		shown := a.shown.Load()
		if shown == nil {
			continue
		}
		for _, root := range *shown {
			i, known := slices.BinarySearchFunc(all, root.Fingerprint, func(r Root, print string) int { return cmp.Compare(r.Fingerprint, print) })
			if known {
				all[i] = all[i].and(root)
			} else {
				all = slices.Insert(all, i, root)
			}
		}
	}
	return all
}

// and merges two entries for the same root from different authorities.
func (r Root) and(other Root) Root {
	r.Authorities = append(slices.Clone(r.Authorities), other.Authorities...)
	r.Restored = r.Restored && other.Restored
	if r.KeptUntil.IsZero() || other.KeptUntil.IsZero() {
		r.KeptUntil = time.Time{}
	} else {
		r.KeptUntil = clock.Later(r.KeptUntil, other.KeptUntil)
	}
	return r
}
