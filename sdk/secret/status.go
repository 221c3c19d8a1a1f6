package secret

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Status is what an operator may see of one secret. It holds no key. In JSON, times are
// RFC 3339. Each call returns its own copy.
type Status struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Authorities []string `json:"authorities"`
	// Held reports whether Peek would return the secret now.
	Held bool `json:"held"`
	// Item is the held item, expired or not; nil before the first. It marshals without its
	// key.
	Item *Item `json:"item,omitempty"`
	// Asked lists the requested names; Item has those that the authority certified.
	Asked string `json:"asked,omitempty"`
	// Rotations counts the certificates or bundles served so far.
	Rotations int `json:"rotations"`
	// Asking reports that a request is in flight.
	Asking bool `json:"asking,omitempty"`
	// Released reports that nothing is held until someone asks.
	Released bool `json:"released,omitempty"`
	// Restored reports that the held item comes from the last run; see [Storage].
	Restored bool `json:"restored,omitempty"`
	// TokenExpiry is the expiry of the token last used for a request, or of a later one
	// found since; zero if unknown.
	TokenExpiry time.Time `json:"token_expiry,omitzero"`
	// Advice is the authority's last word on when to renew the held item; nil if there is
	// none.
	Advice *Advice `json:"advice,omitempty"`
	// Failure is the last failure, nil after a success.
	Failure *Failure `json:"failure,omitempty"`
	// Pending describes a request that the authority has not decided on, such as while a person
	// has to approve it; nil if there is none. The next attempt asks for the decision. Failure is
	// nil meanwhile.
	Pending *Failure `json:"pending,omitempty"`
	// Missing says what keeps peers from verifying the secret, or which authority has no
	// roots for it; empty if nothing is missing.
	Missing string `json:"missing,omitempty"`
	// ExpiredSince is when the held item expired; zero while it is valid.
	ExpiredSince time.Time `json:"expired_since,omitzero"`
	// Roots are the roots of a TrustBundle, sorted by fingerprint.
	Roots []Root `json:"roots,omitempty"`
	// Revocation is the state of a TrustBundle's revocation lists; nil if it has none to
	// have.
	Revocation *Revocation `json:"revocation,omitempty"`
}

// Revocation is what an operator may see of the revocation lists of a trust bundle.
type Revocation struct {
	// Lists are the newest of each CA, by the CA's name. They are served unless Dropped.
	Lists []RevocationList `json:"lists,omitempty"`
	// Without describes the CAs that have no current list: their peers are refused, unless
	// Dropped.
	Without []string `json:"without,omitempty"`
	// Dropped reports that the bundle is served without any list, as one is not current and
	// the operator prefers that.
	Dropped bool `json:"dropped,omitempty"`
	// Failure is why the newest lists could not be taken; nil if they were.
	Failure *Failure `json:"failure,omitempty"`
}

// First returns when the first of the lists is due for its successor; zero without any.
func (r *Revocation) First() (first time.Time) {
	if r == nil {
		return first
	}
	for _, list := range r.Lists {
		if first.IsZero() || list.NextUpdate.Before(first) {
			first = list.NextUpdate
		}
	}
	return first
}

// RevocationList is one certificate revocation list.
type RevocationList struct {
	CA         string    `json:"ca"` // the subject, bounded and escaped
	Number     string    `json:"number,omitempty"`
	ThisUpdate time.Time `json:"this_update"`
	NextUpdate time.Time `json:"next_update"`
	Revoked    int       `json:"revoked"` // certificates
}

// Failure describes why an attempt failed.
type Failure struct {
	// Reason comes from a fixed list; see [Event].
	Reason string `json:"reason"`
	// Action is what the engine does about the failure.
	Action ca.Action `json:"-"`
	// Text is a sentence; foreign text in it is bounded and escaped.
	Text string    `json:"text"`
	At   time.Time `json:"at"`
	// NextTry is zero if only a change of token, settings or provider can help.
	NextTry time.Time `json:"next_try,omitzero"`
}

// NewFailure describes err for an operator: bounded, escaped, with a reason from a fixed
// list. The next attempt comes wait after now.
func NewFailure(err error, now time.Time, wait time.Duration) *Failure {
	return newFailure(err, now, wait)
}

// pending reports whether the authority has not decided on the request yet.
func (f *Failure) pending() bool { return f != nil && f.Reason == ca.Pending.String() }

// Event returns the event of an attempt that ended so: Waiting if the authority has not decided
// yet, else Failed.
func (f *Failure) Event() Event {
	kind := Failed
	if f.pending() {
		kind = Waiting
	}
	return Event{Kind: kind, Reason: f.Reason, Failure: f}
}

func newFailure(err error, now time.Time, wait time.Duration) *Failure {
	f := &Failure{Reason: reasonOf(err), Action: ca.ActionFor(err), Text: text.Clean(err.Error()), At: now}
	if wait != rotation.Never {
		f.NextTry = now.Add(wait)
	}
	return f
}

func statusOf(spec Spec, item *Item, now time.Time) Status {
	s := Status{Name: spec.Name, Kind: spec.Kind.String(), Authorities: spec.Authorities, Asked: spec.Identity.String(), Item: item}
	s.judge(now)
	return s
}

// judge says whether the item is held now, or since when it has been expired.
func (s *Status) judge(now time.Time) {
	switch {
	case s.Item == nil:
	case s.Item.Expired(now):
		s.ExpiredSince = s.Item.NotAfter
	default:
		s.Held = true
	}
}
