package secret_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// happening is one thing that may happen to an engine.
type happening struct {
	name string
	do   func(*engine)
}

var happenings = []happening{
	{"a second goes by", func(*engine) { after(time.Second) }},
	{"ten minutes go by", func(*engine) { after(10 * time.Minute) }},
	{"an hour goes by", func(*engine) { after(time.Hour) }},
	{"the clock is set forward", func(e *engine) { e.jump.Add(int64(20 * time.Minute)); after(31 * time.Second) }},
	// Twenty times this is less than the hour by which the authority dates its root back.
	{"the clock is set back", func(e *engine) { e.jump.Add(int64(-150 * time.Second)); after(31 * time.Second) }},
	{"the authority goes away", func(e *engine) { e.ca.Always(catest.Fault{Err: ca.ErrUnavailable}) }},
	{"the authority says no", func(e *engine) { e.ca.Always(catest.Fault{Err: ca.ErrDenied}) }},
	{"the authority hangs", func(e *engine) { e.ca.Always(catest.Fault{Hang: true}) }},
	{"the authority lies", func(e *engine) { e.ca.Always(catest.Fault{Break: catest.OtherAuthority}) }},
	{"the authority is slow", func(e *engine) { e.ca.Always(catest.Fault{Delay: 20 * time.Second}) }},
	{"the authority heals", func(e *engine) { e.ca.Always(catest.Fault{}) }},
	{"the authority has a new root", func(e *engine) { e.ca.Rotate() }},
	{"somebody kicks", func(e *engine) { e.Kick("") }},
	{"somebody releases", func(e *engine) { _ = e.Release(agent, "default") }},
}

func TestRandomEventsNeverServeWrongAndHeal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		story := rapid.SliceOfN(rapid.IntRange(0, len(happenings)-1), 1, 20).Draw(r, "story")
		overlaps := rapid.SampledFrom([]time.Duration{-1, 0, 5 * time.Minute}).Draw(r, "overlap")
		var fault error // a failure must not leave the bubble by a panic
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, func(c *secret.Config) {
				if overlaps >= 0 {
					overlap(overlaps)(c)
				}
			})
			fault = e.live(story)
			e.Close()
		})
		if fault != nil {
			r.Fatal(fault)
		}
	})
}

// live lets the story happen and checks after each part what always holds.
func (e *engine) live(story []int) error {
	stop, err := e.Watch(agent, "default", func(string) {})
	if err != nil {
		return err
	}
	defer stop()
	synctest.Wait()
	for _, i := range story {
		happenings[i].do(e)
		synctest.Wait()
		if err := e.sound(); err != nil {
			return fmt.Errorf("after %q: %w", happenings[i].name, err)
		}
	}
	before := len(e.ca.Requests())
	e.ca.Always(catest.Fault{})
	after(12 * time.Minute) // the longest wait
	if _, err := e.Peek(agent, "default"); err != nil {
		return fmt.Errorf("it does not heal: %w", err)
	}
	if n := len(e.ca.Requests()) - before; n > 3 {
		return fmt.Errorf("a healthy authority was asked %d times in 12 minutes", n)
	}
	return e.sound()
}

// sound checks what may be said of an engine at any time.
func (e *engine) sound() error {
	leaf, err := e.Peek(agent, "default")
	if errors.Is(err, secret.ErrNotReady) {
		return nil
	}
	if err != nil {
		return err
	}
	roots, err := e.Peek(agent, "ROOTCA")
	if err != nil {
		return err
	}
	bundle, err := pki.ParseBundle(roots.Roots)
	if err != nil {
		return err
	}
	key, err := pki.ParseKey(leaf.Key)
	if err != nil {
		return err
	}
	// A leaf whose root is gone is served on while no successor is to be had.
	if status := e.Status()[1]; status.Failure != nil || status.Asking || status.Missing != "" {
		return nil
	}
	now := e.now()
	if now.Before(leaf.NotBefore) { // the clock was set back, which takes nothing away
		now = leaf.NotBefore
	}
	_, err = pki.Check{Key: key.Public(), Identity: leaf.Identity, Roots: bundle, Now: now}.Chain(leaf.Chain)
	return err
}
