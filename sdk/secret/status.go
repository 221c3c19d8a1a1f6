package secret

import (
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Status is what an operator may see of one secret. It holds no key. As JSON, times are
// RFC 3339. It is a copy of its own: nobody changes it afterwards.
type Status struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Authorities []string `json:"authorities"`
	// Held tells whether the secret would be answered now.
	Held bool `json:"held"`
	// Item is what is held, expired or not; nil before the first. It marshals
	// without its key.
	Item *Item `json:"item,omitempty"`
	// Asked are the names asked for; those of Item are what the authority wrote.
	Asked string `json:"asked,omitempty"`
	// Rotations counts the certificates or bundles served so far.
	Rotations int `json:"rotations"`
	// Asking tells that a request is on its way.
	Asking bool `json:"asking,omitempty"`
	// Released tells that nothing is held until somebody asks.
	Released bool `json:"released,omitempty"`
	// Restored tells that what is held was kept from the last run; see [Storage].
	Restored bool `json:"restored,omitempty"`
	// TokenExpiry is when the token ends that the authority was last asked with, or a
	// later one that was found since; zero where that is not known.
	TokenExpiry time.Time `json:"token_expiry,omitzero"`
	// Failure is the last one, nil after a success.
	Failure *Failure `json:"failure,omitempty"`
	// ExpiredSince is when the held one ended; zero while it is valid.
	ExpiredSince time.Time `json:"expired_since,omitzero"`
	// Roots are those of a TrustBundle, sorted by fingerprint.
	Roots []Root `json:"roots,omitempty"`
}

// Failure is why an attempt did not succeed.
type Failure struct {
	// Reason comes from a fixed list, see [Event].
	Reason string `json:"reason"`
	// Action is what the engine does about it.
	Action ca.Action `json:"-"`
	// Text is a sentence; what is foreign in it is bounded and escaped.
	Text string    `json:"text"`
	At   time.Time `json:"at"`
	// NextTry is zero where only a change of token, settings or provider leads on.
	NextTry time.Time `json:"next_try,omitzero"`
}

func newFailure(err error, now time.Time, wait time.Duration) *Failure {
	f := &Failure{Reason: reasonOf(err), Action: ca.ActionFor(err), Text: text.Clean(err.Error()), At: now}
	if wait != never {
		f.NextTry = now.Add(wait)
	}
	return f
}

func statusOf(spec Spec, item *Item, now time.Time) Status {
	s := Status{Name: spec.Name, Kind: spec.Kind.String(), Authorities: spec.Authorities, Asked: spec.Identity.String(), Item: item}
	switch {
	case item == nil:
	case item.Expired(now):
		s.ExpiredSince = item.NotAfter
	default:
		s.Held = true
	}
	return s
}
