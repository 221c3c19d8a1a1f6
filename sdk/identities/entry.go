package identities

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/tokenbucket"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// refusalKept is how long an unverified token that was refused is remembered. Its pauses
// grow meanwhile, however often its stream comes back.
const refusalKept = 2 * time.Minute

// entry is one identity. It is small, as there are thousands, and has neither a goroutine
// nor a timer. The scheduler's lock guards it.
//
// An entry without an id is a token that is not verified yet. asked is what the token
// claims and is used only in the entry's own request.
type entry struct {
	schedule.Entry
	id       string // the verified SPIFFE ID
	asked    pki.Identity
	token    *credential // the only token of an entry without an id
	sessions []*session
	idle     time.Time // when the last session left
	peers    uses      // requests without a token

	failure *failure // nil if the last attempt succeeded
}

// failure is the state of an entry whose last attempt failed.
type failure struct {
	failure *secret.Failure
	first   int                // number of the first of the failed requests in a row
	failing bool               // it counts among the tokens that fail
	token   bool               // the last one failed for its token, or for want of one
	early   tokenbucket.Bucket // requests that did not wait for the pause
	order   *secret.Order      // to be retried; nil: make a new one
	refused error              // the authority's refusal of an unverified token
	by      process            // the process that brought the unverified token
	until   time.Time          // until when to remember that, by the monotonic clock
}

// counts reports whether the unverified token counts as refused or failing.
func (t *failure) counts() bool { return t != nil && (t.failing || t.refused != nil) }

// refusal returns the authority's refusal while the entry pauses for it.
func (e *entry) refusal(now rotation.Time) error {
	if e.failure == nil || e.Rotation.Pausing(now) == 0 {
		return nil
	}
	return e.failure.refused
}

// remembered returns how long to keep an unverified entry without sessions.
func (e *entry) remembered(now rotation.Time) time.Duration {
	left := e.Rotation.Pausing(now)
	if e.failure != nil && e.failure.refused != nil {
		left = max(left, e.failure.until.Sub(now.Mono))
	}
	return left
}

// accept returns a check that the names in a certificate fit this entry. The authority's
// own name check has already passed.
func (e *entry) accept() func(pki.Identity) error {
	id, asked := e.id, e.asked
	return func(got pki.Identity) error {
		switch {
		case got.SPIFFEID == nil:
			return &pki.CheckError{Check: "names", Detail: "the leaf has no SPIFFE ID"}
		case id != "" && got.SPIFFEID.String() != id:
			return &pki.CheckError{Check: "names", Detail: "the leaf is for another identity than " + id}
		case id != "" && id == asked.String() && !got.Equal(asked):
			return &pki.CheckError{Check: "names", Detail: "the leaf has further names than " + id}
		}
		return nil
	}
}

// bounded returns how many sessions count for Limits.Streams.
func (e *entry) bounded() (n int) {
	for _, s := range e.sessions {
		if !s.unbounded {
			n++
		}
	}
	return n
}

func (e *entry) add(s *session) {
	s.entry, e.idle = e, time.Time{}
	e.sessions = append(e.sessions, s)
	e.Rotation.Want(true)
}

func (e *entry) drop(s *session, now time.Time) {
	i := slices.Index(e.sessions, s)
	if i < 0 {
		return
	}
	e.sessions = slices.Delete(e.sessions, i, i+1)
	if len(e.sessions) == 0 {
		e.sessions, e.idle = nil, now
		e.Rotation.Want(false)
	}
}

// pick returns the best session to ask with, and the sessions whose token has expired.
func (e *entry) pick(now time.Time) (best *session, ended []*session) {
	for _, s := range e.sessions {
		switch {
		case s.credential.over(now):
			ended = append(ended, s)
		case best == nil || e.better(s.credential, best.credential):
			best = s
		}
	}
	return best, ended
}

// better reports whether to ask with c rather than with other; nil is a peer without a token. What the
// authority rejected comes last, in turn, so that each is tried again. Then a peer comes first, as it
// needs no valid token, then the token that lasts longest.
func (e *entry) better(c, other *credential) bool {
	switch mine, others := e.uses(c).doubted, e.uses(other).doubted; {
	case mine != others:
		return mine < others
	case c == nil || other == nil:
		return c == nil && other != nil
	}
	return c.expiry.After(other.expiry)
}

// uses returns those of a credential, or of requests without one.
func (e *entry) uses(c *credential) *uses {
	if c == nil {
		return &e.peers
	}
	return &c.uses
}

// untried reports whether none of the failed requests in a row was made with a session's credential.
func (e *entry) untried(s *session) bool {
	return e.failure != nil && e.uses(s.credential).tried < e.failure.first
}

var errOver = ca.Errorf(ca.Unauthenticated, "the token of this stream has expired: come back with a new one")
