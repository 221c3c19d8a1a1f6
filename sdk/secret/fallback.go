package secret

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// settled is how long the roots of an authority must have been served before it is
// fallen back to: as long as a stream may hold a leaf back for their sake.
const settled = 5 * time.Second

// choice is one of the authorities that may sign a leaf.
type choice struct {
	*authority
	asks turn      // one request in flight for an identity
	away time.Time // since when it was asked in vain; zero: it answered last
}

// choice returns whom the next attempt asks.
func (l *leaf) choice() *choice { return l.choices[l.at] }

// passOn takes an attempt that failed, and wait, which its authority would be given.
// Where it has been away for too long, the next attempt asks the next authority, at
// once; otherwise it asks the first again.
func (l *leaf) passOn(a *attempt, wait time.Duration) time.Duration {
	l.at = 0
	if !unavailable(a.err) {
		a.by.away = time.Time{} // it answered, and its no is a no
		return wait
	}
	if a.by.away.IsZero() {
		a.by.away = a.begun
	}
	if a.by == l.choices[len(l.choices)-1] {
		return wait
	}
	if left := l.spec.FallbackAfter - time.Since(a.by.away); left > 0 {
		return min(wait, left)
	}
	next := l.after(a.by)
	if next < 0 {
		return wait
	}
	l.at, l.order = next, nil // a new key for another authority
	l.log.Warn("authority unavailable, trying the next one", "authority", a.by.Name, "since", a.by.away,
		"next", l.choices[next].Name, "error", text.Clean(a.err.Error()))
	return 0
}

// after returns the next authority whose roots peers have had time to learn, or -1.
func (l *leaf) after(from *choice) int {
	found := false
	for i, c := range l.choices {
		if found && c.known() {
			return i
		}
		if found {
			l.log.Warn("cannot fall back to authority: its roots are unknown or too new", "authority", c.Name)
		}
		found = found || c == from
	}
	return -1
}

// known tells whether the roots have been served long enough to be relied on.
func (a *authority) known() bool {
	since := a.served.Load()
	return since != nil && time.Since(*since) >= settled
}

// unavailable tells whether the authority did not answer, as against one that said
// no, or answered wrong.
func unavailable(err error) bool {
	if _, wrong := errors.AsType[*pki.CheckError](err); wrong || errors.Is(err, errNoKey) {
		return false
	}
	switch ca.ActionFor(err) {
	case ca.Wait, ca.Configure:
		return true
	}
	return false
}

// signer returns the authority whose certificate is held, or whom it is hoped from.
func (l *leaf) signer() *authority {
	if l.by != nil {
		return l.by.authority
	}
	return l.choices[0].authority
}
