package identities_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
)

func TestCloseAbandonsAnExchangeThatIgnoresItsContext(t *testing.T) {
	var free chan struct{}
	hangs := func(_ *engine, c *identities.Config) {
		free = make(chan struct{})
		c.Exchange.Token = func(_ context.Context, token ca.Token) (ca.Token, error) { <-free; return token, nil }
	}
	bubble(t, hangs, func(e *engine) {
		e.join(token("web"))
		synctest.Wait()
		closed := make(chan struct{})
		go func() { e.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(5 * time.Second):
			t.Error("Close has not returned after 5 seconds")
		}
		close(free)
		<-closed
		synctest.Wait()
		e.requests(0)
	})
}

func TestExchangeThatIgnoresItsContextDelaysNoOtherWorker(t *testing.T) {
	var free chan struct{}
	hangs := func(_ *engine, c *identities.Config) {
		free = make(chan struct{})
		c.Limits.InFlight, c.Exchange.Timeout = 2, time.Second
		c.Exchange.Token = func(_ context.Context, token ca.Token) (ca.Token, error) {
			if ownerOf(token) == "stuck" {
				<-free
			}
			return token, nil
		}
	}
	bubble(t, hangs, func(e *engine) {
		stuck := e.join(token("stuck"))
		synctest.Wait()
		e.join(token("web")).held()
		after(3 * time.Second)
		if n := e.Counts(); n.Failing != 1 || !strings.Contains(n.Failure.Text, "no answer within 1s") {
			t.Errorf("counts: %+v", n)
		}
		close(free)
		after(2 * time.Minute)
		stuck.held()
	})
}
