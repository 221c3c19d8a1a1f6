package signing

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestFloodOfOneOwnerLeavesSlotsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots()
		var mu sync.Mutex
		inside, most := 0, 0
		slow := func(context.Context) error {
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(5 * time.Second)
			mu.Lock()
			inside--
			mu.Unlock()
			return nil
		}
		var tasks sync.WaitGroup
		for range 1000 {
			tasks.Go(func() {
				if err := s.Do(t.Context(), "flood", slow); err != nil {
					t.Error(err) // who waits for a slot has all the time
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if err := s.Do(t.Context(), "shop", func(context.Context) error { return nil }); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		tasks.Wait()
		if most != mostCalls/2 || len(s.owners) != 0 {
			t.Errorf("%d at once, %d owners remembered", most, len(s.owners))
		}
	})
}

func TestCallsHaveADeadlineAndEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots()
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		if err := s.Do(t.Context(), "shop", hang); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != callTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		for range mostCalls / 2 {
			go func() { _ = s.Do(t.Context(), "shop", hang) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Do(ctx, "shop", hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
