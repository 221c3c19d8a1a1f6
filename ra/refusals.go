package ra

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxRefusals bounds the different refusals that are counted; more are counted as one
	// for each reason.
	maxRefusals = 1000
	// flushEvery is how often counted refusals are written.
	flushEvery = time.Minute
)

// refusals writes the first of equal refusals at once and counts those that follow: one
// line a minute has their number.
type refusals struct {
	log *auditLog

	mu     sync.Mutex
	bucket loglimit.Bucket // of lines at once; a caller that may ask may also ask for much
	counts map[[16]byte]*refusal
}

// refusal is one that was seen, and how often since its last line.
type refusal struct {
	line  auditLine
	count int
	since time.Time
}

func newRefusals(log *auditLog) *refusals {
	return &refusals{log: log, counts: map[[16]byte]*refusal{}}
}

// refuse records a refusal, and writes it if it is new.
func (r *refusals) refuse(ctx context.Context, line auditLine, reason ca.Reason, err error) {
	line.Event, line.Reason = eventRefused, reason.String()
	line.Text = text.Clean(strings.TrimPrefix(err.Error(), line.Reason+": "))
	if r.count(&line) {
		line.Count = 1
		if r.log.write(ctx, line) != nil {
			r.again(line)
		}
	}
}

// count reports whether the refusal is to be written at once. Otherwise the refusal is counted.
func (r *refusals) count(line *auditLine) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.find(line)
	if seen.since.IsZero() {
		seen.since = line.Time
		if _, first = r.bucket.Allow(time.Now()); first && r.log.fault.Load() == nil {
			return true
		}
	}
	seen.count++
	seen.line.Time = line.Time
	return false
}

// again counts a refusal whose own line could not be written.
func (r *refusals) again(line auditLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.find(&line).count++
}

// find returns the entry of equal refusals, of a whole reason if there are too many.
func (r *refusals) find(line *auditLine) *refusal {
	if line.key == ([16]byte{}) {
		line.key = digest(line.Subject.String(), line.Subject.PodUID, line.Door, line.Rule, line.Reason, line.Text)
	}
	if seen := r.counts[line.key]; seen != nil {
		return seen
	}
	if len(r.counts) >= maxRefusals {
		*line = auditLine{
			Time: line.Time, Event: eventRefused, Reason: line.Reason, key: digest(line.Reason),
			Text: "refusals of many kinds: too many to tell apart",
		}
		if seen := r.counts[line.key]; seen != nil {
			return seen
		}
	}
	seen := &refusal{line: *line}
	r.counts[line.key] = seen
	return seen
}

// flush writes a line for each refusal that came again, and forgets those that did not.
func (r *refusals) flush(ctx context.Context) {
	lines := r.take()
	if len(lines) > 0 && r.log.write(ctx, lines...) != nil {
		for _, line := range lines {
			r.giveBack(line)
		}
	}
}

func (r *refusals) take() (lines []auditLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, seen := range r.counts {
		if seen.count == 0 {
			delete(r.counts, key)
			continue
		}
		line := seen.line
		since := seen.since
		line.Count, line.Since = seen.count, &since
		lines = append(lines, line)
		seen.count, seen.since = 0, line.Time
	}
	return lines
}

func (r *refusals) giveBack(line auditLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count, since := line.Count, *line.Since
	line.Count, line.Since = 0, nil
	seen := r.find(&line)
	seen.count += count
	seen.since = since
}
