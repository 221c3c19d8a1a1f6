package secrets

import (
	"crypto/x509"
	"slices"
	"time"
)

// State says how much of a certificate's lifetime is left.
type State string

// The states.
const (
	Valid   State = "valid"
	Ending  State = "ending" // see near
	Expired State = "expired"
	Broken  State = "malformed" // no certificate that can be served
)

// States lists all states, worst first.
var States = [...]State{Broken, Expired, Ending, Valid}

// week is the maximum length of the Ending state.
const week = 7 * 24 * time.Hour

// lifetime is that of the first certificate to expire among those served together.
type lifetime struct{ starts, ends time.Time }

func lifetimeOf(certs []*x509.Certificate) lifetime {
	first := slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return lifetime{first.NotBefore, first.NotAfter}
}

func (l lifetime) state(now time.Time) State {
	switch {
	case !now.Before(l.ends):
		return Expired
	case l.ends.Sub(now) < l.near():
		return Ending
	}
	return Valid
}

// near is the last sixth of the lifetime, a week at most: automatic renewal comes
// earlier, for a certificate of a day as for one of a year.
func (l lifetime) near() time.Duration { return min(l.ends.Sub(l.starts)/6, week) }
