package secrets

import (
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxRemarks = 4096 // remembered so that each is logged once
	maxLines   = 60   // log lines a minute, at most half of them for refusals
)

// Counts are statistics of a [Source] since its creation.
type Counts struct {
	// Refused counts refused resources by reason.
	Refused map[Reason]uint64
	// Expired and Malformed count objects, each version once.
	Expired, Malformed uint64
	// Cached and CachedBytes are the resources cached now.
	Cached, CachedBytes int
}

// record counts and logs notable events, each once and at a limited rate.
type record struct {
	log *slog.Logger
	now func() time.Time

	mu                 sync.Mutex
	refused            map[Reason]uint64
	expired, malformed uint64
	known              map[string]struct{}
	minute             time.Time
	lines, unsaid      int
}

func newRecord(log *slog.Logger, now func() time.Time) *record {
	return &record{log: log, now: now, refused: map[Reason]uint64{}, known: map[string]struct{}{}}
}

// Counts returns the current statistics.
func (s *Source) Counts() Counts {
	slots, bytes := s.made.size()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{maps.Clone(s.refused), s.expired, s.malformed, slots, bytes}
}

// refuses records a resource that a caller does not get.
func (r *record) refuses(caller *discovery.Caller, name string, why *refusal) {
	who, cluster := "", ""
	if caller != nil {
		who, cluster = caller.Identity.String(), caller.Cluster
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[why.reason]++
	if why.reason == Malformed || !r.first("refused", string(why.reason), cluster, who, name) {
		return
	}
	r.say(maxLines/2, "secret refused", "resource", text.Clean(name), "caller", text.Clean(who),
		"cluster", text.Clean(cluster), "reason", string(why.reason), "detail", text.Clean(why.detail))
}

// remarks records an object that cannot be served or has expired.
func (r *record) remarks(o object, p product) {
	if p.err == nil && r.now().Before(p.ends) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	about := []any{"cluster", text.Clean(o.cluster), "namespace", o.namespace, "name", o.name}
	switch {
	case p.err != nil && r.first("malformed", o.cluster, o.namespace, o.name, o.stamp, p.err.Error()):
		r.malformed++
		message := "malformed secret, not serving it"
		if p.resource != nil {
			message = "malformed secret, serving its last good version"
		}
		r.say(maxLines, message, append(about, "error", text.Clean(p.err.Error()))...)
	case p.err == nil && r.first("expired", o.cluster, o.namespace, o.name, p.resource.Version):
		r.expired++
		r.say(maxLines, "serving an expired certificate", append(about, "expired", p.ends.UTC())...)
	}
}

// first reports whether this is new. Made-up names must not grow the memory.
func (r *record) first(words ...string) bool {
	key := strings.Join(words, "\x00")
	if _, known := r.known[key]; known {
		return false
	}
	if len(r.known) >= maxRemarks {
		for old := range r.known {
			delete(r.known, old)
			break
		}
	}
	r.known[key] = struct{}{}
	return true
}

// say logs a warning unless this minute already has most lines.
func (r *record) say(most int, message string, about ...any) {
	if now := r.now(); now.Sub(r.minute) >= time.Minute || now.Before(r.minute) {
		r.minute, r.lines = now, 0
	}
	if r.lines >= most {
		r.unsaid++
		return
	}
	r.lines++
	r.log.Warn(message, append(about, "suppressed", r.unsaid)...)
	r.unsaid = 0
}
