package ondemand_test

import (
	"context"
	"errors"
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

// story is a Set to which things happen at random.
type story struct {
	*engine
	r     *rand.Rand
	ask   *asker
	limit *budget
	open  []*handshake

	mu   sync.Mutex
	busy map[string]int // orders in flight, by name
}

// watched counts the orders in flight for each name.
func (s *story) watched(name string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[name] += by; s.busy[name] > 1 {
		s.t.Errorf("%s has %d orders in flight", name, s.busy[name])
	}
}

// counting is an authority that counts the orders in flight.
type counting struct {
	*authority
	s *story
}

func (c *counting) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	c.s.watched(req.DNSNames[0], 1)
	defer c.s.watched(req.DNSNames[0], -1)
	return c.authority.CSRSign(ctx, req)
}

func (s *story) name() string { return fmt.Sprintf("n%d.shop.example.org", s.r.IntN(12)) }

func (s *story) rules() []ondemand.Rule {
	rule := shop()
	rule.Names, rule.Idle, rule.InFlight = 6+s.r.IntN(10), 8*time.Hour, 2+s.r.IntN(3)
	rule.Ask, rule.Budget, rule.Evict = s.ask, s.limit, s.r.IntN(2) == 0
	rule.Queue = 20
	return []ondemand.Rule{rule}
}

// happen does one thing.
func (s *story) happen() {
	switch s.r.IntN(22) {
	case 0, 1, 2, 3:
		if h := s.subscribe(s.name()); h.err == nil {
			s.open = append(s.open, h)
		} else if !errors.Is(h.err, secret.ErrUnknown) {
			s.t.Error(h.err)
		}
	case 4, 5:
		if n := len(s.open); n > 0 {
			i := s.r.IntN(n)
			s.open[i].stop()
			s.open = append(s.open[:i], s.open[i+1:]...)
		}
	case 6:
		s.ask.set(answers(s.r.IntN(2) == 0, nil))
	case 7:
		s.ask.set(answers(false, errors.New("away")))
	case 8:
		s.ca.delay.Store(int64(s.r.IntN(20)) * int64(time.Second))
	case 9:
		faults := []catest.Fault{
			{Err: ca.ErrUnavailable}, {Err: ca.Errorf(ca.Denied, "no")}, {Break: catest.WrongKey}, {Hang: true},
			{Err: &ca.Error{Reason: ca.Pending, RetryAfter: time.Second}}, {Err: &ca.Error{Reason: ca.RateLimited, RetryAfter: time.Minute}},
		}
		s.ca.Always(faults[s.r.IntN(len(faults))])
	case 10:
		s.ca.Always(catest.Fault{})
	case 11:
		s.storage().fail(func() error { return errors.New("the disk is full") })
	case 12:
		s.storage().fail(nil)
	case 13:
		if err := s.Apply([][]ondemand.Rule{s.rules(), nil}[s.r.IntN(4)/3]); err != nil {
			s.t.Error(err)
		}
	case 14:
		s.config.Rules = s.rules()
		s.restart()
		s.open = nil
	case 16: // a restart with a damaged record
		s.Close()
		for name, r := range s.storage().records {
			if s.r.IntN(3) == 0 {
				r.Content = []byte("damaged")
				s.storage().records[name] = r
			}
		}
		s.config.Rules = s.rules()
		s.start()
		s.open = nil
	case 17:
		s.Kick([]string{"", "test", "other"}[s.r.IntN(3)])
	case 18:
		s.storage().fails(func() error { return ca.Errorf(ca.Unavailable, "away") }, func() error { return errors.New("away") })
	case 19:
		s.storage().fails(func() error { time.Sleep(time.Second); return nil }, func() error { time.Sleep(8 * time.Second); return nil })
	case 20:
		s.storage().fails(nil, nil)
	case 21:
		s.jump.Add([]int64{-int64(time.Hour), int64(time.Hour), int64(10 * time.Second)}[s.r.IntN(3)])
	case 15:
		s.limit.left.Store(int64(s.r.IntN(30)))
	}
	time.Sleep([]time.Duration{0, time.Second, 10 * time.Second, time.Minute, 3 * time.Hour}[s.r.IntN(5)])
	s.check()
}

// check compares the figures with each other.
func (s *story) check() {
	synctest.Wait()
	for _, r := range s.Status().Rules {
		if r.Names < r.Held || r.Names < 0 || r.InFlight < 0 || r.InFlight > 4 || r.Queued < 0 {
			s.t.Fatalf("%+v", r)
		}
	}
}

// heal ends all faults, and demands that each name is served, and that nothing is left in the end.
func (s *story) heal() {
	s.ca.Always(catest.Fault{})
	s.ca.delay.Store(0)
	s.ask.set(answers(true, nil))
	s.storage().fail(nil)
	s.storage().fails(nil, nil)
	s.limit.left.Store(1000)
	rule := shop()
	rule.Ask, rule.Idle = s.ask, 8*time.Hour
	if err := s.Apply([]ondemand.Rule{rule}); err != nil {
		s.t.Fatal(err)
	}
	after(time.Hour)
	for i := range 12 {
		name := fmt.Sprintf("n%d.shop.example.org", i)
		h := s.subscribe(name)
		after(10 * time.Second)
		s.has(name)
		h.stop()
	}
	for _, h := range s.open {
		h.stop()
	}
	after(4 * ttl)
	st := s.Status()
	if len(st.Rules) != 1 || st.Rules[0].Names != 0 || st.Rules[0].New != 0 || st.Rules[0].Queued != 0 || st.Rules[0].InFlight != 0 {
		s.t.Errorf("%+v", st)
	}
	s.restart() // drops records that a fault left
	after(time.Minute)
	if n := len(s.storage().index); n != 0 {
		s.t.Errorf("%d records are left", n)
	}
}

func TestRandomEventsKeepRulesOfNames(t *testing.T) {
	for seed := range uint64(8) { // with the race detector, a second or more each
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := &story{r: rand.New(rand.NewPCG(seed, 1)), ask: &asker{say: answers(true, nil)}, limit: &budget{}, busy: map[string]int{}}
			s.limit.left.Store(50)
			bubble(t, func(e *engine, c *ondemand.Config) {
				s.engine = e
				stored(e, c)
				c.Rules = s.rules()
				err := e.manager.Reload(
					[]secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
					[]secret.Authority{{Name: "test", Client: &counting{e.ca, s}}})
				if err != nil {
					t.Fatal(err)
				}
			}, func(*engine) {
				for range 60 {
					s.happen()
				}
				s.heal()
			})
		})
	}
}
