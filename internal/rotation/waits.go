package rotation

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// longest bounds the waits of the engine's own, and how far an authority's word counts.
	longest = 10 * time.Minute
	// shortest keeps retries near a certificate's end from hammering the authority.
	shortest = time.Second
	// early is how long the waits are short while nothing is held, as the workload stands
	// still until it has a certificate. After that they are ten times as long, so that a
	// fleet that has none does not ask for ever.
	early = 10 * time.Minute
	// widest is the most by which a wait is spread after refusals for rate in a row. A fleet
	// that is spread so far keeps a quota busy with about eight calls for each certificate:
	// docs/decisions/0021-waits.md.
	widest = 40 * time.Minute
)

// kind is a row of the table of waits.
type kind int

const (
	fault   kind = iota // the authority did not answer, or failed
	refusal             // it refuses
	wrong               // its reply fails our checks, and cost it a certificate
	limited             // too many requests
	pending             // it has the request and has not decided on it yet
	missing             // it lacks the ability; another version of it, or what stood in for it, may not
	kinds
)

// Row is the first wait of a kind and the longest of those that follow, which double.
type Row struct{ First, Most time.Duration }

var (
	whileHeld = [kinds]Row{
		fault: {time.Second, time.Minute}, refusal: {time.Minute, longest}, wrong: {time.Minute, longest}, pending: {time.Minute, longest},
		missing: {longest, longest},
	}
	whileBare = [kinds]Row{
		fault: {time.Second, 10 * time.Second}, refusal: {time.Second, time.Minute}, wrong: {10 * time.Second, longest}, pending: {10 * time.Second, time.Minute},
		missing: {longest, longest},
	}
)

// Waits computes the wait after each failed attempt by the table of package ca. The zero
// value is ready. Only the caller's own check of its settings is final: whatever an authority
// answers, it is asked again.
type Waits struct {
	count [kinds]uint8 // failures in a row
	words uint8        // refusals in a row that came with the authority's own wait
	cut   time.Time    // monotonic: until then the authority's word holds, as one was cut short
	held  bool         // something was held at the last failure
}

// After returns the wait after err. now is the monotonic clock, left the remaining life of
// the held certificate, and without, if left is zero, how long nothing has been held. The
// counts start anew when what was held has ended: from then on each wait keeps the workload
// without a certificate.
func (w *Waits) After(err error, now time.Time, left, without time.Duration) time.Duration {
	if w.held && left <= 0 {
		w.Reset()
	}
	w.held = left > 0
	k := kindOf(err)
	told := w.told(k, ca.RetryAfter(err))
	if k == limited && told > 0 {
		k = fault // the authority itself sets the time
	}
	wait := max(w.own(k, left, without), told)
	if k == pending && told > 0 {
		wait = told // its own time, however often it says so
	}
	if left <= 0 {
		return wait
	}
	return w.within(wait, told, now, left)
}

// within keeps a wait to a tenth of what is left. An authority's own word is cut short once
// within its time.
func (w *Waits) within(wait, told time.Duration, now time.Time, left time.Duration) time.Duration {
	limit := max(left/10, shortest)
	limit -= part(limit, 0.25)
	switch {
	case wait <= limit:
		return wait
	case told <= limit:
		return limit
	case now.Before(w.cut):
		return w.cut.Sub(now)
	}
	w.cut = now.Add(told)
	return limit
}

func kindOf(err error) kind {
	if _, bad := errors.AsType[*pki.CheckError](err); bad {
		return wrong
	}
	switch ca.ActionFor(err) {
	case ca.EndAttempt, ca.RefreshToken: // the attempt has already read the token again
		return refusal
	case ca.Missing:
		return missing
	}
	switch ca.ReasonFor(err) {
	case ca.RateLimited:
		return limited
	case ca.Pending:
		return pending
	}
	return fault // also Drop: it was not the engine that went away, as it asks for the wait
}

// own returns the engine's own wait.
func (w *Waits) own(k kind, left, without time.Duration) time.Duration {
	n := w.failed(k)
	if k == limited { // from the whole range, so that a fleet does not come back at once
		return shortest + part(min(longest*time.Duration(n+1), widest), 1)
	}
	r := whileHeld[k]
	if left <= 0 {
		r = whileBare[k]
		if without >= early {
			r.Most = min(10*r.Most, longest)
		}
	}
	return r.wait(n)
}

// Next returns the wait after a failure without an answer, such as the crash of a process, by
// a table of the caller's.
func (w *Waits) Next(r Row) time.Duration { return r.wait(w.failed(fault)) }

// failed returns how many failures of a kind came in a row before this one.
func (w *Waits) failed(k kind) uint8 {
	n := w.count[k]
	if n < 16 {
		w.count[k]++
	}
	return n
}

// wait returns the wait after n earlier ones, give or take a quarter.
func (r Row) wait(n uint8) time.Duration {
	wait := r.First << n
	wait += part(wait/2, 1) - wait/4
	return min(wait, r.Most-part(r.Most, 0.25))
}

// told returns the authority's own wait. That of a pending request is about this one alone, and
// means no load.
func (w *Waits) told(k kind, asked time.Duration) time.Duration {
	if k != pending || asked <= 0 {
		return w.spread(asked)
	}
	asked = max(min(asked, longest), shortest)
	return asked + part(asked, 0.25)
}

// spread returns what an authority asked for, spread by up to its own length, and by three
// times as much with each further refusal: all agents of a fleet may have got the same time.
func (w *Waits) spread(asked time.Duration) time.Duration {
	if asked <= 0 {
		w.words = 0
		return 0
	}
	asked = min(asked, longest)
	further := asked
	for range w.words {
		further = min(3*further, widest-asked)
	}
	w.words = min(w.words+1, 16)
	return asked + part(further, 1)
}

// part draws from 0 up to that part of d.
func part(d time.Duration, most float64) time.Duration {
	return time.Duration(float64(d) * most * rand.Float64())
}

// Reset forgets all failures; call it when a possible cause has changed.
func (w *Waits) Reset() { *w = Waits{} }
