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
	// Authorities are those that it came from, as configured.
	Authorities []string `json:"authorities"`
	// KeptUntil is when a root goes that no authority names any more; zero while one
	// does.
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// Restored tells that it was kept from the last run, and that its authority has told
	// no roots since; see [Storage].
	Restored bool `json:"restored,omitempty"`
}

// show notes what is served of the authority, for the status.
func (a *authority) show(served *pki.Bundle) {
	roots := make([]Root, 0, served.Len())
	for _, cert := range served.Certificates() {
		print := pki.Fingerprint(cert)
		roots = append(roots, Root{
			Fingerprint: print, Subject: text.Clean(cert.Subject.String()), NotBefore: cert.NotBefore, NotAfter: cert.NotAfter,
			Authorities: []string{a.Name}, KeptUntil: earlier(a.roots.dropped[print].until, cert.NotAfter), Restored: a.roots.dropped[print].restored,
		})
	}
	a.shown.Store(&roots)
}

// roots returns those of all authorities: one that any of them names is not on its
// way out.
func (b *trustBundle) roots() []Root {
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

// and is the same root, which another authority told, too.
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

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
