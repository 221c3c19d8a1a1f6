package secret

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// settled is how long an authority's roots must have been served before the leaf falls
// back to it: the longest that a stream may hold a leaf back for new roots.
const settled = 5 * time.Second

// choice is one of the authorities that may sign a leaf.
type choice struct {
	*authority
	asks    call.Turn // allows one request in flight per identity; outlives reloads
	bundles []string  // the trust bundles that have its roots
	gone    bool      // it may not sign any more; what it signed is held
	away    time.Time // since when it has been unavailable; zero: it answered last

	// What was sent to this authority alone: another one gets an order and a token of its own.
	order   *order // for its next attempt, if that is a retry
	refused refusedToken
}

// choice returns the authority that the next attempt asks.
func (l *leaf) choice() *choice { return l.choices[l.at] }

// passOn chooses the authority to ask after a failed attempt and returns the wait. If a's
// authority has been away for too long, the next attempt asks the next authority at once;
// otherwise it asks the first one again, after wait.
func (l *leaf) passOn(a *attempt, wait time.Duration) time.Duration {
	l.at = 0
	if !unavailable(a.err) {
		a.by.away = time.Time{} // it answered: a refusal is final, and a pending request is its own
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
	l.at = next
	l.log.Warn("authority unavailable, trying the next one", "authority", a.by.Name, "since", a.by.away,
		"next", l.choices[next].Name, "error", text.Clean(a.err.Error()))
	return 0
}

// forgetOrders has the next attempt at each authority make a new order.
func (l *leaf) forgetOrders() {
	for _, c := range l.choices {
		c.order = nil
	}
}

// after returns the index of the next authority whose roots peers have had time to learn,
// or -1.
func (l *leaf) after(from *choice) int {
	found := false
	for i, c := range l.choices {
		if found && c.hasSettled() {
			return i
		}
		if found {
			l.log.Warn("cannot fall back to authority: its roots are unknown or too new", "authority", c.Name)
		}
		found = found || c == from
	}
	return -1
}

// hasSettled reports whether the roots have been served long enough to rely on.
func (a *authority) hasSettled() bool {
	since := a.served.Load()
	return since != nil && time.Since(*since) >= settled
}

// unavailable reports whether the authority did not answer, as opposed to refusing, sending an
// invalid reply, or having a request that it has not decided on.
func unavailable(err error) bool {
	_, wrong := errors.AsType[*pki.CheckError](err)
	if wrong || errors.Is(err, errNoKey) || errors.Is(err, ca.ErrPending) {
		return false
	}
	switch ca.ActionFor(err) {
	case ca.Wait, ca.Configure:
		return true
	}
	return false
}

// signer returns the authority that signed the held certificate; the first one if none is
// held.
func (l *leaf) signer() *authority {
	if l.by != nil {
		return l.by.authority
	}
	return l.choices[0].authority
}
