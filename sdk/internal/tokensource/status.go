package tokensource

import (
	"errors"
	"maps"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Status is a [Source] at one moment, for an operator. It contains no token.
type Status struct {
	Keys                 []string
	KeysAt               time.Time
	KeysFailure, Failure *Failure
	Missing, Failing     bool
	Held, Signed         int
	Failures             map[string]int
}

// Failure is why a call of the authority failed. Those of sdk/jwtsvid and sdk/witsvid are the same.
type Failure struct {
	Reason  string
	Action  ca.Action
	Text    string
	At      time.Time
	NextTry time.Time
}

// BadReply is the reason of a reply that failed our checks.
const BadReply = "reply"

// errReply marks one, for which package rotation has waits of its own.
var errReply error = &pki.CheckError{Check: BadReply}

// record is kept for the status alone. Source.mu guards it.
type record struct {
	signed      int
	failures    map[string]int
	failure     *Failure
	failing     bool
	keysAt      time.Time
	keysFailure *Failure
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
		for _, key := range p.Keys {
			out.Keys = append(out.Keys, text.Clean(key.KeyID))
		}
	}
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		if h.reply.Token != "" && now.Before(h.reply.Ends.Add(-leastLeft)) {
			out.Held++
		}
	}
	r := &s.record
	out.Signed, out.Failures = r.signed, maps.Clone(r.failures)
	out.Failure, out.Failing, out.KeysAt, out.KeysFailure = r.failure, r.failing, r.keysAt, r.keysFailure
	return out
}
