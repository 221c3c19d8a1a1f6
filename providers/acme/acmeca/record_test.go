//go:build unix

package acmeca

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Each of the folders is another process's.
func TestLockIsHeldByOneAlsoWhenItsFileIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := t.TempDir()
		take := func(ctx context.Context) (func(), error) {
			f := must2(openFolder(at))
			t.Cleanup(func() { must(t, f.close()) })
			return f.lock(ctx, "order")
		}
		first := must2(take(t.Context()))
		waited := make(chan func())
		go func() { waited <- must2(take(t.Context())) }()
		synctest.Wait() // it waits for the first's file
		first()
		second := must2(take(t.Context()))
		select {
		case <-waited:
			t.Fatal("two have it")
		case <-time.After(time.Minute):
		}
		ends, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := take(ends); err == nil {
			t.Error("a third has it")
		}
		second()
		(<-waited)()
		must2(take(t.Context()))()
	})
}
