package ondemand_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
)

// A network's file system that hangs ends no call. Each holds a thread of the process.
func TestStorageThatHangsForHoursHoldsFewCalls(t *testing.T) {
	bubble(t, func(e *engine, c *ondemand.Config) {
		stored(e, c)
		c.Rules[0].Idle, c.Rules[0].InFlight = time.Minute, 2
	}, func(e *engine) {
		const names = 40
		name := func(i int) string { return fmt.Sprintf("n%d.shop.example.org", i) }
		for i := range names {
			h := e.subscribe(name(i))
			e.has(name(i))
			h.stop()
		}
		e.restart()
		var now, most atomic.Int64
		back := make(chan struct{})
		hang := func() error {
			most.Store(max(most.Load(), now.Add(1)))
			<-back
			now.Add(-1)
			return nil
		}
		e.storage().fails(hang, hang)
		for i := range names { // one now and then
			h := e.subscribe(name(i))
			after(2 * time.Minute)
			h.stop()
		}
		if n := most.Load(); n == 0 || n > 4 {
			t.Errorf("%d calls read a record, want 4 at most", n)
		}
		close(back)
		after(time.Minute)
		h := e.subscribe(name(0))
		after(time.Minute)
		e.has(name(0))
		h.stop()
	})
}

func TestStorageThatHangsHoldsFewDeletions(t *testing.T) {
	bubble(t, func(e *engine, c *ondemand.Config) {
		stored(e, c)
		c.Rules[0].Names, c.Rules[0].Evict = 1, true
	}, func(e *engine) {
		var now, most atomic.Int64
		back := make(chan struct{})
		e.storage().fails(nil, func() error {
			most.Store(max(most.Load(), now.Add(1)))
			<-back
			now.Add(-1)
			return nil
		})
		for i := range 100 { // each takes the place of the one before
			h := e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
			after(time.Minute)
			h.stop()
		}
		if n := most.Load(); n == 0 || n > 32 {
			t.Errorf("%d calls delete a record, want 32 at most", n)
		}
		close(back)
		after(time.Minute)
	})
}
