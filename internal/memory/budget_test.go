package memory_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/memory"
)

func TestClaimsWaitTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(10)
		first := take(t, b, 6)
		got := make(chan *memory.Claim, 2)
		for _, bytes := range []int64{8, 1} { // the second would fit, but comes later
			go func() { got <- take(t, b, bytes) }()
			synctest.Wait()
		}
		if len(got) > 0 {
			t.Fatal("more was taken than there is, or out of turn")
		}
		first.Shrink(1)
		synctest.Wait()
		if len(got) != 2 {
			t.Fatalf("%d of two have what fits now", len(got))
		}
		for range 2 {
			(<-got).Release()
		}
		first.Release()
		take(t, b, 100).Release() // as much as there is
	})
}

func TestGivingUpLeavesNothingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(10)
		held := take(t, b, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Share(4).Take(ctx, 4); err == nil {
			t.Fatal("more was taken than there is")
		}
		held.Release()
		take(t, b, 10).Release()
	})
}

func TestOneShareLeavesBytesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(40)
		greedy := b.Share(10)
		for range 10 {
			go func() {
				if c, err := greedy.Take(t.Context(), 10); err == nil {
					time.Sleep(time.Hour)
					c.Release()
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		take(t, b.Share(10), 10).Release()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("another holder waited %s", waited)
		}
		time.Sleep(10 * time.Hour)
	})
}

// With little memory, one provider that holds all that it may still leaves room for another's reply.
func TestOneShareOfTheLeastBudgetLeavesAReply(t *testing.T) {
	const reply = 12 << 20 // package wire's room
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Least)
		greedy := b.Share(reply)
		for range 10 {
			go func() {
				if c, err := greedy.Take(t.Context(), reply); err == nil {
					time.Sleep(time.Hour)
					c.Release()
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		take(t, b.Share(reply), reply).Release()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("another holder waited %s", waited)
		}
		time.Sleep(10 * time.Hour)
	})
}

func TestKeptClaimIsReleasedWhenDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(10)
		take(t, b, 10).Returned(t.Context(), 5) // nothing keeps it
		ctx, done := memory.Keep(t.Context())
		take(t, b, 10).Returned(ctx, 8)
		var wg sync.WaitGroup
		wg.Go(func() { take(t, b, 10).Returned(ctx, 8) })
		synctest.Wait()
		take(t, memory.New(1), 1).Release()
		done()
		wg.Wait() // and one that returns after done is released at once
		take(t, b, 10).Release()
	})
}

func take(t *testing.T, b *memory.Budget, bytes int64) *memory.Claim {
	t.Helper()
	c, err := b.Take(t.Context(), bytes)
	if err != nil {
		t.Error(err)
	}
	return c
}
