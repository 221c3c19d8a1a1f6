package schedule

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// model drives a Queue by any events, and knows what waits and what is in flight.
type model struct {
	*Queue
	r       *rapid.T
	now     time.Time
	waiting map[*Item]bool
	flying  []*Item
	begun   int
	told    time.Time
}

func (m *model) add(tenant string, renewal bool) {
	i := &Item{Tenant: tenant, Renewal: renewal, Rank: m.now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(m.r, "rank")) * time.Second)}
	if rapid.Bool().Draw(m.r, "tried") {
		i.Tried = m.now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(m.r, "since")) * time.Second)
	}
	m.waiting[i] = true
	if dropped := m.Add(i, m.now); dropped != nil {
		if !m.waiting[dropped] || len(m.waiting) <= m.limits.Length {
			m.r.Fatal("something is dropped that does not wait, or with room left")
		}
		delete(m.waiting, dropped)
	}
}

func (m *model) remove() {
	for i := range m.waiting {
		m.Remove(i)
		m.Remove(i) // twice does no harm
		delete(m.waiting, i)
		return
	}
}

func (m *model) next() {
	i, wait := m.Next(m.now)
	switch {
	case i == nil && wait < 0:
		m.r.Fatal("the wait is negative")
	case i == nil:
		return
	case !m.waiting[i]:
		m.r.Fatal("a turn for what does not wait")
	case m.now.Before(m.told):
		m.r.Fatal("a call within the authority's own wait")
	}
	delete(m.waiting, i)
	m.flying = append(m.flying, i)
	m.begun++
}

func (m *model) land(err error) {
	if len(m.flying) == 0 {
		return
	}
	i := m.flying[0]
	m.flying = m.flying[1:]
	m.Done(i, err, m.now)
	if after := m.now.Add(ca.RetryAfter(err)); after.After(m.told) {
		m.told = after
	}
}

var happenings = map[string]func(*model){
	"a adds":       func(m *model) { m.add("a", false) },
	"b adds":       func(m *model) { m.add("b", false) },
	"b renews":     func(m *model) { m.add("b", true) },
	"c adds":       func(m *model) { m.add("c", false) },
	"c renews":     func(m *model) { m.add("c", true) },
	"one is gone":  (*model).remove,
	"a turn":       (*model).next,
	"another turn": (*model).next,
	"a moment":     func(m *model) { m.now = m.now.Add(100 * time.Millisecond) },
	"a minute":     func(m *model) { m.now = m.now.Add(time.Minute) },
	"answered":     func(m *model) { m.land(nil) },
	"denied":       func(m *model) { m.land(ca.ErrDenied) },
	"away":         func(m *model) { m.land(ca.ErrUnavailable) },
	"missing":      func(m *model) { m.land(ca.ErrUnimplemented) },
	"limited":      func(m *model) { m.land(ca.ErrRateLimited) },
	"told to wait": func(m *model) { m.land(&ca.Error{Reason: ca.RateLimited, RetryAfter: 10 * time.Second}) },
	"not called":   (*model).giveBack,
}

func (m *model) giveBack() {
	if len(m.flying) > 0 {
		m.Return(m.flying[0], m.now)
		m.flying = m.flying[1:]
		m.begun--
	}
}

func (m *model) check() {
	s := m.Status()
	if s.Waiting != len(m.waiting) || s.InFlight != len(m.flying) || s.Waiting > m.limits.Length || s.InFlight > m.limits.InFlight {
		m.r.Fatalf("%d wait and %d are in flight, the status says %+v", len(m.waiting), len(m.flying), s)
	}
	if s.Rate <= 0 || s.Rate > m.limits.Rate {
		m.r.Fatalf("the rate is %v", s.Rate)
	}
	if spent := m.now.Sub(begin).Seconds()*m.limits.Rate + m.limits.Burst; float64(m.begun) > spent+1e-6 {
		m.r.Fatalf("%d calls began in %s", m.begun, m.now.Sub(begin))
	}
}

func TestRandomEventsKeepScheduleRules(t *testing.T) {
	names := slices.Sorted(maps.Keys(happenings))
	rapid.Check(t, func(r *rapid.T) {
		m := &model{Queue: New(Limits{Rate: 2, Burst: 3, InFlight: 4, Length: 10, Reserve: 3}), r: r, now: begin, waiting: map[*Item]bool{}}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 120).Draw(r, "story") {
			happenings[name](m)
			m.check()
		}
		m.drains()
	})
}

// drains demands that all is served, and forgotten, once the authority answers.
func (m *model) drains() {
	for range 2000 {
		m.land(nil)
		m.next()
		m.now = m.now.Add(time.Second)
	}
	m.check()
	if len(m.waiting) > 0 || len(m.flying) > 0 {
		m.r.Fatalf("%d wait and %d are in flight for ever", len(m.waiting), len(m.flying))
	}
	if len(m.tenants) > 3 || len(m.rings[everything])+len(m.rings[renewals]) > 6 {
		m.r.Fatalf("%d tenants are remembered", len(m.tenants))
	}
}
