package ra

import (
	"math"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// stop keeps a rule's requests from an authority whose replies cannot be given out: each
// would cost a certificate. One request at a time tries again, ever more seldom.
type stop struct {
	upTo    time.Duration // requests for more lifetime are not stopped; 0: none is
	since   time.Time     // by the wall clock
	until   time.Time     // monotonic: when the next may try
	probing bool
	waits   rotation.Waits
	err     error
}

const forAll = time.Duration(math.MaxInt64)

// stops are the stopped rules of one authority.
type stops map[string]*stop

// of returns what stops an order, or nil.
func (s stops) of(o *Order) *stop {
	if found := s[o.decision.Rule]; found != nil && o.ttl <= found.upTo {
		return found
	}
	return nil
}

// closed returns an error if the order is stopped and may not try.
func (s stops) closed(o *Order, now time.Time) error {
	found := s.of(o)
	if found == nil || !found.probing && !now.Before(found.until) {
		return nil
	}
	err := ca.Errorf(ca.Unavailable, "the authority's replies to the rule %q cannot be given out: %v", o.decision.Rule, found.err)
	err.RetryAfter = max(found.until.Sub(now), time.Second)
	return err
}

// begin marks an order that is about to try.
func (s stops) begin(o *Order) (probe *stop) {
	if probe = s.of(o); probe != nil {
		probe.probing = true
	}
	return probe
}

// settle takes the outcome of a call: what it stops, or whether it ends a stop.
func (s stops) settle(o *Order, probe *stop, reach scope, err error, now, wall time.Time) (stopped bool) {
	if probe != nil {
		probe.probing = false
	}
	if err == nil {
		if found := s[o.decision.Rule]; found != nil && (found.upTo == 0 || o.ttl <= found.upTo) {
			delete(s, o.decision.Rule)
		}
		return false
	}
	if reach == caller {
		return false
	}
	found := s[o.decision.Rule]
	if found == nil {
		found = &stop{}
		s[o.decision.Rule] = found
	}
	if stopped = found.upTo == 0; stopped {
		found.since = wall
	}
	found.upTo = max(found.upTo, o.ttl)
	if reach != shorter {
		found.upTo = forAll
	}
	if probe != nil || stopped { // not each of those that were in flight together
		found.until = now.Add(found.waits.After(err, now, aDay, 0))
	}
	found.err = err
	return stopped
}

const aDay = 24 * time.Hour // what callers hold, as far as waits go
