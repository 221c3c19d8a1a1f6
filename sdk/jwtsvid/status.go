package jwtsvid

import (
	"errors"
	"maps"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
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
const BadReply = "reply"

// errReply marks one.
var errReply = errors.New("the authority's JWT-SVID fails our checks")

// record is kept for the status alone. Source.mu guards it.
type record struct {
	signed, refused int
	failures        map[string]int
	failure         *Failure
	failing         bool
	keysAt          time.Time
	keysFailure     *Failure
}

func newRecord() record {
	r := record{failures: map[string]int{BadReply: 0}}
	for _, reason := range ca.Reasons() {
		r.failures[reason.String()] = 0 // a counter that begins at 1 looks to Prometheus as if nothing happened
	}
	return r
}

func (r *record) succeeded() { r.signed, r.failing = r.signed+1, false }

func (r *record) failed(err error, now, next time.Time) {
	r.failure, r.failing = newFailure(err, now, next), true
	r.failures[r.failure.Reason]++
}

func newFailure(err error, now, next time.Time) *Failure {
	reason := ca.ReasonFor(err).String()
	if errors.Is(err, errReply) {
		reason = BadReply
	}
	return &Failure{Reason: reason, Action: ca.ActionFor(err), Text: text.Clean(err.Error()), At: now, NextTry: next}
}

func (s *Source) noteFailure(err error) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.failed(err, now, time.Time{})
}

// noteKeys records that the authority has sent its keys.
func (s *Source) noteKeys() {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.keysAt, s.record.keysFailure = now, nil
}

// noteEnd records that the watch of the keys has ended.
func (s *Source) noteEnd(err error, wait time.Duration) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.keysFailure = newFailure(err, now, now.Add(wait))
}

// Status returns a copy.
func (s *Source) Status() Status {
	out := Status{Keys: []string{}, Missing: s.missing.Load()}
	if p := s.published.Load(); p != nil {
		for _, key := range p.keys {
			out.Keys = append(out.Keys, text.Clean(key.KeyID))
		}
	}
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h.token != "" && now.Before(h.ends.Add(-leastLeft)) {
			out.Held++
		}
	}
	r := &s.record
	out.Signed, out.Failures, out.Refused = r.signed, maps.Clone(r.failures), r.refused
	out.Failure, out.Failing, out.KeysAt, out.KeysFailure = r.failure, r.failing, r.keysAt, r.keysFailure
	return out
}
