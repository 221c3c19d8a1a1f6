package ondemand_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
	limits "github.com/countersign-dev/countersign/sdk/ondemand/budget"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// A name whose validation fails at the CA is ordered at most 5 times in an hour, however often
// clients ask for it, also over a restart, and delays no other name.
func TestFailingNameIsOrderedFiveTimesAnHour(t *testing.T) {
	ledger := new(*limits.Ledger)
	bubble(t, func(e *engine, c *ondemand.Config) {
		if *ledger == nil {
			*ledger = limits.NewLedger(e.now)
		}
		c.Rules[0].Budget = (*ledger).Budget("shops", limits.Limits{})
	}, func(e *engine) {
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "the proof of a.shop.example.org failed")})
		for i := range 5 * 3600 {
			h := e.subscribe("a.shop.example.org")
			after(200 * time.Millisecond)
			h.stop()
			if i == 5*1800 {
				e.restart()
			}
		}
		synctest.Wait()
		if n := len(e.ca.Requests()); n > 5 || n < 3 {
			t.Errorf("%d orders in an hour", n)
		}
		e.ca.Always(catest.Fault{})
		e.subscribe("b.shop.example.org")
		e.has("b.shop.example.org")
	})
}

// A client that holds 1,000 handshakes open for names that nothing decides keeps no other waiting.
func TestOpenHandshakesKeepNoOtherWaiting(t *testing.T) {
	decider := &asker{say: func(_ context.Context, name string) (bool, error) {
		time.Sleep(5 * time.Millisecond)
		if name[0] == 'r' {
			return false, &ca.Error{Reason: ca.Unavailable, Message: "cannot tell"}
		}
		return true, nil
	}}
	bubble(t, func(e *engine, c *ondemand.Config) {
		memory := ask.Remember(decider, ask.Limits{})
		e.t.Cleanup(memory.Close)
		c.Rules[0].Ask = memory
	}, func(e *engine) {
		e.subscribe("held.shop.example.org")
		after(time.Second)
		e.has("held.shop.example.org")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for i := range 1000 {
			go e.hold(ctx, fmt.Sprintf("r%d.shop.example.org", i))
		}
		time.Sleep(5 * time.Second)
		for i := range 4 {
			if took := e.reach(fmt.Sprintf("honest%d.shop.example.org", i)); took > time.Second {
				t.Errorf("an honest new name took %s", took)
			}
			e.has("held.shop.example.org")
			time.Sleep(time.Second)
		}
		cancel()
		after(time.Second)
	})
}

// hold subscribes to a name, and again as soon as it is refused.
func (e *engine) hold(ctx context.Context, name string) {
	for ctx.Err() == nil {
		h := e.subscribe(name)
		for h.err == nil && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			if _, err := e.Peek(secret.Caller{}, name); !errors.Is(err, secret.ErrNotReady) {
				break
			}
		}
		if h.err == nil {
			h.stop()
		}
		time.Sleep(100 * time.Millisecond)
	}
}
