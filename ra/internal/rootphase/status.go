package rootphase

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Root is what is shown of a root.
type Root struct {
	Fingerprint string
	Phase       Phase
	Since       time.Time
	Until       time.Time // when the phase ends by itself; zero if it does not
	NotAfter    time.Time
	Unplanned   bool // the authority signed below it before its time
}

// Status returns all roots, the one announced first first.
func (m *Machine) Status() []Root {
	sorted := slices.SortedFunc(maps.Values(m.roots), func(a, b *root) int {
		return cmp.Or(a.announced.Compare(b.announced), bytes.Compare(a.cert.Raw, b.cert.Raw))
	})
	shown := make([]Root, len(sorted))
	for i, r := range sorted {
		shown[i] = Root{Fingerprint: pki.Fingerprint(r.cert), NotAfter: r.cert.NotAfter, Unplanned: r.unplanned}
		shown[i].Phase, shown[i].Since, shown[i].Until = m.phase(r)
	}
	return shown
}

func (m *Machine) phase(r *root) (p Phase, since, until time.Time) {
	switch {
	case !r.withdrawn.IsZero():
		return Withdrawn, r.withdrawn, m.leaves(r)
	case !r.trusted.IsZero():
		return Trusted, r.trusted, time.Time{}
	case !m.since(r).IsZero():
		return Waiting, m.since(r), m.due(r)
	}
	return Announced, r.announced, m.due(r)
}
