package witsvid

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Status is a [Source] at one moment, for an operator. It contains no token and no key.
type Status struct {
	// Keys are the IDs of the published keys, escaped; none while they are not known.
	Keys []string `json:"keys"`
	// KeysAt is when the authority last sent its keys, which it does when they change.
	KeysAt time.Time `json:"keys_at,omitzero"`
	// KeysFailure is why they are not followed now.
	KeysFailure *Failure `json:"keys_failure,omitempty"`
	// Missing means that the authority lacks the ability.
	Missing bool `json:"missing,omitempty"`
	// Held is how many WIT-SVIDs are held that work.
	Held int `json:"held"`
	// Signed counts the WIT-SVIDs of the authority that passed our checks, and Failures the other
	// calls by their reason: one of package ca, or "reply" for a reply that failed our checks.
	Signed   int            `json:"signed"`
	Failures map[string]int `json:"failures"`
	// Failure is the last failed call; Failing means that none has succeeded since.
	Failure *Failure `json:"failure,omitempty"`
	Failing bool     `json:"failing"`
}

// Failure is why a call of the authority failed.
type Failure struct {
	// Reason is one of package ca, or "reply".
	Reason string `json:"reason"`
	// Action is what the Source does about it.
	Action ca.Action `json:"-"`
	// Text is bounded and escaped.
	Text string    `json:"text"`
	At   time.Time `json:"at"`
	// NextTry is when the Source asks again, at the earliest.
	NextTry time.Time `json:"next_try,omitzero"`
}

// Status returns a copy.
func (s *Source) Status() Status {
	t := s.tokens.Status()
	return Status{
		Keys: t.Keys, KeysAt: t.KeysAt, KeysFailure: (*Failure)(t.KeysFailure), Missing: t.Missing, Held: t.Held, Signed: t.Signed,
		Failures: t.Failures, Failure: (*Failure)(t.Failure), Failing: t.Failing,
	}
}
