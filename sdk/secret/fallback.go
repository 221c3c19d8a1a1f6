package secret

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// settled is how long an authority's roots must have been served before the leaf falls
// back to it: the longest that a stream may hold a leaf back for new roots.
const settled = 5 * time.Second

// sent is what a leaf has sent to one authority alone: another one gets an order and a token of
// its own.
type sent struct {
	order   *order // for the next attempt, if that is a retry
	refused refusedToken
	away    time.Time // since when the authority has been unavailable; zero: it answered last
}

func (l *leaf) sentTo(a *authority) *sent {
	if l.sent[a] == nil {
		l.sent[a] = &sent{}
	}
	return l.sent[a]
}

// passOn chooses the authority to ask after a failed attempt and returns the wait. If a's
// authority has been away for too long, the next attempt asks the next authority at once;
// otherwise it asks the first one again, after wait.
func (l *leaf) passOn(a *attempt, wait time.Duration) time.Duration {
	l.at = 0
	sent := l.sentTo(a.by)
	if !unavailable(a.err) {
		sent.away = time.Time{} // it answered: a refusal is final, and a pending request is its own
		return wait
	}
	if sent.away.IsZero() {
		sent.away = a.begun
	}
	if a.by == l.authorities[len(l.authorities)-1] {
		return wait
	}
	if left := l.spec.FallbackAfter - time.Since(sent.away); left > 0 {
		return min(wait, left)
	}
	next := l.after(a.by)
	if next < 0 {
		return wait
	}
	l.at = next
	l.log.Warn("authority unavailable, trying the next one", "authority", a.by.Name, "since", sent.away,
		"next", l.authorities[next].Name, "error", text.Clean(a.err.Error()))
	return 0
}

// forgetOrders has the next attempt at each authority make a new order.
func (l *leaf) forgetOrders() {
	for _, sent := range l.sent {
		sent.order = nil
	}
}

// after returns the index of the next authority whose roots peers have had time to learn,
// or -1.
func (l *leaf) after(from *authority) int {
	found := false
	for i, a := range l.authorities {
		if found && a.hasSettled() {
			return i
		}
		if found {
			l.log.Warn("cannot fall back to authority: its roots are unknown or too new", "authority", a.Name)
		}
		found = found || a == from
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
		return l.by
	}
	return l.authorities[0]
}
