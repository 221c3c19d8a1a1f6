//go:build !race

// The race detector takes a minute for each seed here. Other tests of several machines run with it.

package ondemand_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// flights is an authority that has the orders in flight by name.
type flights struct {
	*authority
	t  *testing.T
	mu sync.Mutex
	by map[string]map[string]int // name, order, requests
}

func (f *flights) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	name := req.DNSNames[0]
	f.add(name, req.ID, 1)
	defer f.add(name, req.ID, -1)
	return f.authority.CSRSign(ctx, req)
}

// add fails the test if two orders of a name are in flight.
func (f *flights) add(name, id string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by[name] == nil {
		f.by[name] = map[string]int{}
	}
	if f.by[name][id] += n; f.by[name][id] == 0 {
		delete(f.by[name], id)
	}
	if len(f.by[name]) > 1 {
		f.t.Errorf("%s has %d orders in flight", name, len(f.by[name]))
	}
}

// saga is some machines to which things happen at random.
type saga struct {
	*fleet
	r    *rand.Rand
	open [][]*handshake
}

func (s *saga) name() string { return fmt.Sprintf("n%d.shop.example.org", s.r.IntN(5)) }

func (s *saga) happen() {
	i := s.r.IntN(len(s.engines))
	e, m := s.engines[i], s.machines[i]
	switch s.r.IntN(14) {
	case 0, 1, 2, 3:
		if h := e.subscribe(s.name()); h.err == nil {
			s.open[i] = append(s.open[i], h)
		}
	case 4:
		if n := len(s.open[i]); n > 0 {
			s.open[i][n-1].stop()
			s.open[i] = s.open[i][:n-1]
		}
	case 5:
		m.set(func() { m.away = ca.Errorf(ca.Unavailable, "away") })
		time.Sleep(time.Duration(s.r.IntN(8)) * time.Second)
		m.set(func() { m.away = nil })
	case 6: // a kill
		s.kill(i)
		s.open[i] = nil
		time.Sleep(time.Duration(s.r.IntN(20)) * time.Second)
		m.set(func() { m.dead, m.seen = false, map[string]secret.Entry{} })
		e.start()
	case 7:
		s.ca.delay.Store(int64(s.r.IntN(20)) * int64(time.Second))
	case 8:
		faults := []catest.Fault{
			{Err: ca.ErrUnavailable}, {Err: ca.Errorf(ca.Denied, "no")}, {Break: catest.WrongKey},
			{Err: &ca.Error{Reason: ca.Pending, RetryAfter: time.Second}}, {Err: &ca.Error{Reason: ca.RateLimited, RetryAfter: time.Minute}},
		}
		s.ca.Always(faults[s.r.IntN(len(faults))])
	case 9, 10:
		s.ca.Always(catest.Fault{})
	case 11:
		e.jump.Store([]int64{-int64(time.Hour), int64(time.Hour)}[s.r.IntN(2)])
	case 12:
		e.Kick("")
	case 13:
		e.restart()
		s.open[i] = nil
	}
	time.Sleep([]time.Duration{0, time.Second, 10 * time.Second, time.Minute, 3 * time.Hour}[s.r.IntN(5)])
	synctest.Wait()
}

// heal ends all faults, and demands that all machines serve one certificate for each name.
func (s *saga) heal() {
	s.ca.Always(catest.Fault{})
	s.ca.delay.Store(0)
	for _, e := range s.engines {
		e.jump.Store(0)
	}
	after(2 * time.Hour)
	for n := range 5 {
		name := fmt.Sprintf("n%d.shop.example.org", n)
		for range 3 {
			for i, e := range s.engines {
				s.open[i] = append(s.open[i], e.subscribe(name))
			}
			after(time.Minute)
		}
		first := s.engines[0].has(name)
		for i, e := range s.engines {
			if got := e.has(name); got.Fingerprint != first.Fingerprint {
				s.t.Errorf("%s: machine %d serves another certificate", name, i)
			}
		}
	}
	for _, all := range s.open {
		for _, h := range all {
			h.stop()
		}
	}
	after(5 * ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.index)+len(s.claims) > 0 {
		s.t.Errorf("%d records and %d claims are left: %v", len(s.index), len(s.claims), s.index)
	}
}

func TestRandomEventsLeaveMachinesWithOneOrderForAName(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			machines(t, 2+int(seed%2), func(_ int, c *ondemand.Config) { c.Rules[0].Idle = 8 * time.Hour }, func(f *fleet) {
				a := &flights{authority: f.ca, t: t, by: map[string]map[string]int{}}
				for _, e := range f.engines {
					err := e.manager.Reload(
						[]secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test", "other"}}},
						[]secret.Authority{{Name: "test", Client: a}, {Name: "other", Client: e.other}})
					if err != nil {
						t.Fatal(err)
					}
				}
				s := &saga{fleet: f, r: rand.New(rand.NewPCG(seed, 2)), open: make([][]*handshake, len(f.engines))}
				for _, m := range s.machines {
					m.set(func() { m.poll = 20 * time.Second }) // as days pass
				}
				for range 50 {
					s.happen()
				}
				s.heal()
			})
		})
	}
}
