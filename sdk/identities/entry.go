package identities

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// calm is how long roots must leave a certificate alone before its next loss is handled at
// once.
const calm = time.Minute

// entry is one identity. It is small, as there are thousands, and has neither a goroutine
// nor a timer. Set.mu guards it.
//
// An entry without an id is a token that nobody has verified yet. asked is what the token
// claims and is used only in the entry's own request.
type entry struct {
	id       string // the verified SPIFFE ID
	asked    pki.Identity
	token    *credential // the only token of an entry without an id
	sessions []*session
	idle     time.Time // when the last session left

	item    *secret.Item
	next    *secret.Item // verified but not valid yet
	lost    time.Time    // when the roots last abandoned item
	replace time.Time    // when to replace item for that; zero: never
	mourned bool         // the expiry was reported
	flying  bool         // a request is in flight
	gone    bool         // removed

	trouble *trouble // nil if the last attempt succeeded

	due    time.Time // next time to look at it
	dueAt  int
	rank   time.Time // its place in the request queue
	rankAt int
}

// trouble is the state of an entry whose last attempt failed.
type trouble struct {
	backoff secret.Backoff
	failure *secret.Failure
	order   *secret.Order // to be retried; nil: make a new one
	refused error         // the authority's refusal of an unverified token
	by      process       // the process that brought that token
	until   time.Time     // end of the pause, by the monotonic clock; zero: no pause
}

func (t *trouble) kick() {
	t.backoff.Reset()
	t.until = time.Time{}
}

// left returns the rest of the pause.
func (e *entry) left() time.Duration {
	if e.trouble == nil || e.trouble.until.IsZero() {
		return 0
	}
	return max(0, time.Until(e.trouble.until))
}

// valid reports whether the entry holds a certificate that may be served.
func (e *entry) valid(now time.Time) bool { return e.item != nil && !e.item.Expired(now) }

// life returns the remaining life of the held certificate, zero if none is held.
func (e *entry) life(now time.Time) time.Duration {
	if e.item == nil {
		return 0
	}
	return max(0, e.item.NotAfter.Sub(now))
}

// wants reports whether to request a certificate now.
func (e *entry) wants(now time.Time) bool {
	if e.flying || e.next != nil || len(e.sessions) == 0 || e.left() > 0 {
		return false
	}
	return e.outdated(now)
}

// outdated reports whether the entry needs a new certificate.
func (e *entry) outdated(now time.Time) bool {
	stray := !e.replace.IsZero() && !now.Before(e.replace)
	return !e.valid(now) || stray || !now.Before(e.item.RenewAt)
}

// lose records that the held certificate no longer chains to a root. It is replaced at
// once, or later if this happens repeatedly, as with an authority whose replicas disagree
// on its roots.
func (e *entry) lose(now time.Time) {
	e.replace = now
	if !e.lost.IsZero() && now.Sub(e.lost) < calm {
		e.replace = e.lost.Add(calm)
	}
	e.lost = now
}

// nextDue returns when to look at the entry next; zero for never.
func (e *entry) nextDue(now time.Time, idle time.Duration) (at time.Time) {
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if left := e.left(); left > 0 {
		sooner(now.Add(left))
	}
	if len(e.sessions) == 0 {
		sooner(e.idle.Add(idle))
	}
	if e.next != nil {
		sooner(e.next.NotBefore)
	}
	if e.item != nil {
		if len(e.sessions) > 0 {
			sooner(e.item.RenewAt)
		}
		sooner(e.replace)
		sooner(e.item.NotAfter.Add(1)) // valid through NotAfter itself
	}
	return at
}

// urgency returns the entry's place in the request queue: when it began to wait if it
// holds nothing, otherwise when its certificate expires.
func (e *entry) urgency(now time.Time) time.Time {
	if e.item == nil {
		return now
	}
	return e.item.NotAfter
}

// accept returns a check that the names in a certificate fit this entry. The authority's
// own name check has already passed.
func (e *entry) accept() func(pki.Identity) error {
	id, asked := e.id, e.asked
	return func(got pki.Identity) error {
		switch {
		case got.SPIFFEID == nil:
			return &pki.CheckError{Check: "names", Detail: "the leaf has no SPIFFE ID, so it is nobody's here"}
		case id != "" && got.SPIFFEID.String() != id:
			return &pki.CheckError{Check: "names", Detail: "the leaf is for another identity than " + id}
		case id != "" && id == asked.String() && !got.Equal(asked):
			return &pki.CheckError{Check: "names", Detail: "the leaf has further names than " + id}
		}
		return nil
	}
}

func (e *entry) add(s *session) {
	s.entry, e.idle = e, time.Time{}
	e.sessions = append(e.sessions, s)
}

func (e *entry) drop(s *session, now time.Time) {
	i := slices.Index(e.sessions, s)
	if i < 0 {
		return
	}
	e.sessions = slices.Delete(e.sessions, i, i+1)
	if len(e.sessions) == 0 {
		e.sessions, e.idle = nil, now
	}
}

// pick returns the best session to ask with, and the sessions whose token has expired. The
// token that lasts longest comes first, one that the authority recently rejected last.
func (e *entry) pick(now time.Time) (best *session, ended []*session) {
	for _, s := range e.sessions {
		switch {
		case s.credential.over(now):
			ended = append(ended, s)
		case best == nil || s.credential.better(best.credential):
			best = s
		}
	}
	return best, ended
}

var errOver = ca.Errorf(ca.Unauthenticated, "the token of this stream has expired: come back with a new one")
