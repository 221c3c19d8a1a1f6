package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/strangers"
)

// reason is why a stream was refused, one word that fits a metric.
type reason string

const (
	notReady     reason = "not-ready"
	noCredential reason = "no-credential"
	refused      reason = "refused"
	unavailable  reason = "unavailable"
	malformed    reason = "malformed"
	plaintext    reason = "plaintext"
	overLimit    reason = "limit"

	overAddressLimit reason = "address-limit"
)

var allReasons = []reason{notReady, noCredential, refused, unavailable, malformed, plaintext, overLimit, overAddressLimit}

// limitOf returns which limit it was that strangers reached.
func limitOf(full error) reason {
	if errors.Is(full, strangers.ErrFullForOne) {
		return overAddressLimit
	}
	return overLimit
}

// refuse counts and logs the reason and returns what the client sees.
func (s *Server) refuse(ctx context.Context, r reason, seen error, why any) error {
	s.metrics.refuse(r)
	s.say("stream rejected", "reason", string(r), "error", why, "peer", addressOf(ctx))
	return seen
}

// perMinute limits the log lines that strangers can cause.
const perMinute = 30

// say logs an event caused by a client.
func (s *Server) say(what string, args ...any) {
	if unsaid, ok := s.said.allow(time.Now()); ok {
		s.cfg.Log.Warn(what, append(args, "suppressed", unsaid)...)
	}
}

// limiter limits log lines per minute.
type limiter struct {
	mu     sync.Mutex
	begun  time.Time // start of the current minute
	lines  int       // logged in this minute
	unsaid int
}

// allow reports whether a line may be logged and how many were suppressed before it.
func (l *limiter) allow(now time.Time) (unsaid int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.begun) >= time.Minute {
		l.begun, l.lines = now, 0
	}
	if l.lines == perMinute {
		l.unsaid++
		return 0, false
	}
	l.lines++
	unsaid, l.unsaid = l.unsaid, 0
	return unsaid, true
}
