package discovery

import (
	"context"
	"sync"
	"time"
)

// reason is why a stream was not taken in, one word that fits a metric.
type reason string

const (
	notReady     reason = "not-ready"
	noCredential reason = "no-credential"
	refused      reason = "refused"
	unavailable  reason = "unavailable"
	malformed    reason = "malformed"
	plaintext    reason = "plaintext"
	overLimit    reason = "limit"
)

var allReasons = []reason{notReady, noCredential, refused, unavailable, malformed, plaintext, overLimit}

// refuse counts and logs why, and returns what the client sees.
func (s *Server) refuse(ctx context.Context, r reason, seen error, why any) error {
	s.metrics.refuse(r)
	s.say("a stream is refused", "reason", string(r), "because", why, "peer", addressOf(ctx))
	return seen
}

// perMinute is how many lines strangers may have written to the log.
const perMinute = 30

// say logs what a client gave reason for.
func (s *Server) say(what string, args ...any) {
	if unsaid, ok := s.said.allow(time.Now()); ok {
		s.cfg.Log.Warn(what, append(args, "suppressed", unsaid)...)
	}
}

// limiter lets some lines a minute through.
type limiter struct {
	mu     sync.Mutex
	begun  time.Time // the present minute
	lines  int       // in it
	unsaid int
}

// allow tells whether a line may be logged, and how many went unsaid before it.
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
