package identities

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// calm is how long roots must have left a certificate alone for its next loss to be
// answered at once.
const calm = time.Minute

// entry is one identity. It is small, as there are thousands, and has neither a
// goroutine nor a timer. Set.mu guards it.
//
// An entry without an id is a token that nobody has vouched for yet: asked is what it
// claims, and counts for nothing but its own request.
type entry struct {
	id       string // the SPIFFE ID that was verified
	asked    pki.Identity
	token    *credential // an entry without an id: its only one
	sessions []*session
	idle     time.Time // since when there is no session

	item    *secret.Item
	next    *secret.Item // verified, and not valid yet
	lost    time.Time    // when item was last left behind by the roots
	replace time.Time    // from when on it is to be replaced for that; zero: it is not
	mourned bool         // its expiry was told
	flying  bool         // a request is under way
	gone    bool         // let go of

	trouble *trouble // nil while all is well

	due    time.Time // when the clock has something for it
	dueAt  int
	rank   time.Time // its place among those that are to be asked for
	rankAt int
}

// trouble is what an entry has whose last attempt failed.
type trouble struct {
	backoff secret.Backoff
	failure *secret.Failure
	order   *secret.Order // to be sent again; nil for a new one
	refused error         // the authority's no to the token of an entry without an id
	by      process       // who brought that token
	until   time.Time     // of the pause, by the monotonic clock; zero: no pause
}

func (t *trouble) kick() {
	t.backoff.Reset()
	t.until = time.Time{}
}

// left is the rest of the pause.
func (e *entry) left() time.Duration {
	if e.trouble == nil || e.trouble.until.IsZero() {
		return 0
	}
	return max(0, time.Until(e.trouble.until))
}

// valid tells whether something is held that may be served.
func (e *entry) valid(now time.Time) bool { return e.item != nil && !e.item.Expired(now) }

// life is the time that what is held has left, zero where nothing is.
func (e *entry) life(now time.Time) time.Duration {
	if e.item == nil {
		return 0
	}
	return max(0, e.item.NotAfter.Sub(now))
}

// wants tells whether a certificate is to be asked for now.
func (e *entry) wants(now time.Time) bool {
	if e.flying || e.next != nil || len(e.sessions) == 0 || e.left() > 0 {
		return false
	}
	return e.outdated(now)
}

// outdated tells whether what is held, if anything, is to be followed by another.
func (e *entry) outdated(now time.Time) bool {
	stray := !e.replace.IsZero() && !now.Before(e.replace)
	return !e.valid(now) || stray || !now.Before(e.item.RenewAt)
}

// lose notes that what is held leads to no root any more. It is replaced at once, but
// later where that happens again and again, as with an authority whose replicas
// disagree on its roots.
func (e *entry) lose(now time.Time) {
	e.replace = now
	if !e.lost.IsZero() && now.Sub(e.lost) < calm {
		e.replace = e.lost.Add(calm)
	}
	e.lost = now
}

// nextDue is when the clock has something for the entry, after what it has now; zero
// for never.
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
		sooner(e.item.NotAfter.Add(1)) // valid to its last moment
	}
	return at
}

// urgency is the place among those that are to be asked for: whoever has nothing is
// ordered by when that began, all others by when they will have nothing.
func (e *entry) urgency(now time.Time) time.Time {
	if e.item == nil {
		return now
	}
	return e.item.NotAfter
}

// accept tells whether a certificate of these names may be this entry's. The
// authority's own rule has been kept already.
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

// pick returns a session to ask with, of those whose token has not ended, and those
// whose token has. The one whose token lasts longest is asked first, one that the
// authority refused lately last.
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
