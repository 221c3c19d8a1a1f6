package jwtsvid

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
)

// Status is a [Source] at one moment, for an operator. It contains no token.
type Status struct {
	// Keys are the IDs of the published keys, escaped; none while they are not known.
	Keys []string `json:"keys"`
	// KeysAt is when the authority last sent its keys, which it does when they change.
	KeysAt time.Time `json:"keys_at,omitzero"`
	// KeysFailure is why they are not followed now.
	KeysFailure *Failure `json:"keys_failure,omitempty"`
	// Missing means that the authority lacks the ability.
	Missing bool `json:"missing,omitempty"`
	// Held is how many tokens are held that work.
	Held int `json:"held"`
	// Signed counts the tokens of the authority that passed our checks, and Failures the other
	// calls by their reason: one of package ca, or "reply" for a reply that failed our checks.
	Signed   int            `json:"signed"`
	Failures map[string]int `json:"failures"`
	// Refused counts requests for audiences that are not allowed.
	Refused int `json:"refused_audiences"`
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
	// NextTry is when a caller makes the Source ask again, at the earliest; zero: it does not
	// ask before the authority changes.
	NextTry time.Time `json:"next_try,omitzero"`
}

// BadReply is the reason of a reply that failed our checks.
const BadReply = tokensource.BadReply

// Status returns a copy.
func (s *Source) Status() Status {
	t := s.tokens.Status()
	return Status{
		Keys: t.Keys, KeysAt: t.KeysAt, KeysFailure: (*Failure)(t.KeysFailure), Missing: t.Missing, Held: t.Held, Signed: t.Signed,
		Failures: t.Failures, Refused: int(s.refused.Load()), Failure: (*Failure)(t.Failure), Failing: t.Failing,
	}
}
