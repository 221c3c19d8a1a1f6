package ondemand_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// manyRules is how many rules the tests of bounds in sum have.
const manyRules = 100

func ruleOf(i int) ondemand.Rule {
	return ondemand.Rule{
		Name: fmt.Sprint("rule", i), Patterns: patterns(fmt.Sprintf("*.r%d.example.org", i)),
		Certificate: secret.Spec{Authorities: []string{"test"}, TTL: ttl},
	}
}

// hundred has rules of the CA "test", and "shop" of the CA "other".
func hundred(_ *engine, c *ondemand.Config) {
	c.Rules[0].Certificate.Authorities = []string{"other"}
	for i := range manyRules {
		c.Rules = append(c.Rules, ruleOf(i))
	}
}

func TestIdleRulesHaveNoGoroutines(t *testing.T) {
	bubble(t, hundred, func(e *engine) {
		after(time.Second)
		idle := runtime.NumGoroutine()
		for i := range manyRules {
			e.subscribe(fmt.Sprintf("a.r%d.example.org", i))
		}
		after(time.Second)
		e.orders(manyRules)
		if n := runtime.NumGoroutine() - idle; n > 4*manyRules {
			t.Errorf("%d goroutines after one order for each of %d rules", n, manyRules)
		}
		after(time.Minute)
		if n := runtime.NumGoroutine() - idle; n > manyRules/10 { // other tests have some, too
			t.Errorf("%d goroutines more than before, a minute after the last order", n)
		}
	})
}

func TestHundredRulesCostNoHundredTimesOfOne(t *testing.T) {
	bubble(t, hundred, func(e *engine) {
		e.ca.hang.Store(true)
		var waiting uint64
		for i := range manyRules {
			for n := range 300 {
				if e.subscribe(fmt.Sprintf("n%d.r%d.example.org", n, i)).err == nil {
					waiting++
				}
			}
		}
		after(time.Second)
		if most := e.ca.most.Load(); most > 4*16+2*manyRules {
			t.Errorf("%d orders in flight", most)
		}
		for i, s := range e.Status().Rules[1:] {
			if s.InFlight < 2 {
				t.Errorf("rule %d has %d orders in flight", i, s.InFlight)
			}
		}
		if waiting > 4*1000+(4*16+18)*manyRules {
			t.Errorf("%d names wait", waiting)
		}
		began := time.Now()
		for n := range 16 {
			e.get(fmt.Sprintf("n%d.shop.example.org", n))
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("names of a rule whose CA answers took %s", took)
		}
	})
}

// stubborn is a CA that ignores its context.
type stubborn struct {
	*catest.CA
	calls chan struct{} // receives one for each call
	end   chan struct{}
}

func (s *stubborn) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	s.calls <- struct{}{}
	<-s.end
	return ca.Certificate{}, ca.Errorf(ca.Unavailable, "too late")
}

// Workers end after a while. One whose call has not returned has to stay, as the next one would make
// one call more that hangs.
func TestClientThatIgnoresItsContextKeepsNoMoreWorkersThanOneRuleHas(t *testing.T) {
	var hangs *stubborn
	bubble(t, func(e *engine, c *ondemand.Config) { hangs = e.stubborn(c); c.Rules[0].InFlight = 2 }, func(e *engine) {
		for range 60 {
			e.subscribe("a.shop.example.org")
			after(time.Minute)
		}
		if n := len(hangs.calls); n > 2 {
			t.Errorf("%d calls hang, of a rule with 2 in flight", n)
		}
		close(hangs.end)
	})
}

// stubborn makes each authority one that ignores its context.
func (e *engine) stubborn(c *ondemand.Config) *stubborn {
	hangs := &stubborn{e.other, make(chan struct{}, 1000), make(chan struct{})}
	manager, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: hangs}, {Name: "other", Client: hangs}}, Now: e.now, Log: e.log.Logger(),
		Secrets: []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test", "other"}}},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { manager.Close() })
	c.Manager = manager
	return hangs
}

// Each reload that changes the authority of a rule leaves calls behind that hang.
func TestReloadsWhileCallsHangAddFewCalls(t *testing.T) {
	var hangs *stubborn
	bubble(t, func(e *engine, c *ondemand.Config) { hangs = e.stubborn(c) }, func(e *engine) {
		const reloads = 20
		for i := range reloads {
			for n := range 16 {
				e.subscribe(fmt.Sprintf("n%d-%d.shop.example.org", i, n))
			}
			after(5 * time.Minute)
			r := shop()
			r.Certificate.Authorities[0] = []string{"other", "test"}[i%2]
			if err := e.Apply([]ondemand.Rule{r}); err != nil {
				t.Fatal(err)
			}
		}
		// Four times what a rule may have, and two of its own for each reload.
		if n := len(hangs.calls); n < 16 || n > 4*16+2*reloads {
			t.Errorf("%d calls hang", n)
		}
		close(hangs.end)
		after(time.Minute)
		if s := e.rule(); s.InFlight > 16 {
			t.Errorf("%+v", s)
		}
		if n := len(hangs.calls); n > 4*16+2*reloads+16 {
			t.Errorf("%d calls", n)
		}
	})
}
