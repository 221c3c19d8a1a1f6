package ondemand_test

import (
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Envoy subscribes to a name until it restarts. One that may have no certificate any more must not
// count as an expired certificate for so long.
func TestNameThatMayHaveNoCertificateAnyMoreIsDroppedAtItsEnd(t *testing.T) {
	for title, end := range map[string]func(*engine, *asker){
		"denied":       func(_ *engine, ask *asker) { ask.set(answers(false, nil)) },
		"without rule": func(e *engine, _ *asker) { _ = e.Apply(nil) },
	} {
		t.Run(title, func(t *testing.T) {
			ask := &asker{say: answers(true, nil)}
			bubble(t, func(e *engine, c *ondemand.Config) { stored(e, c); c.Rules[0].Ask = ask }, func(e *engine) {
				h := e.subscribe("a.shop.example.org")
				e.has("a.shop.example.org")
				after(time.Minute)
				end(e, ask)
				after(23 * time.Hour)
				e.has("a.shop.example.org")
				if s := e.rule(); s.Failing > 0 || s.Late > 0 {
					t.Errorf("%+v", s)
				}
				notices := h.notices.Load()
				after(2 * time.Hour)
				for _, r := range e.Status().Rules {
					if r.Expired+r.Names+r.Failing > 0 {
						t.Errorf("%+v", r)
					}
				}
				if _, err := e.Peek(secret.Caller{}, "a.shop.example.org"); !errors.Is(err, secret.ErrUnknown) || h.notices.Load() == notices {
					t.Errorf("%v, after %d notices", err, h.notices.Load())
				}
				after(24 * time.Hour)
				if e.storage().has("a.shop.example.org") || e.count(secret.Expired) > 0 {
					t.Errorf("it is stored, or reported: %v", e.events)
				}
				e.orders(1)
				h.stop()
			})
		})
	}
}

// A day after the end the orders stop, and the subscription of a client that keeps it does not stand in
// the way of another try.
func TestNameThatWasGivenUpIsOrderedAgainOnRequest(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		h := e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
		e.ca.hang.Store(true)
		after(25 * time.Hour)
		if s := e.rule(); s.Expired != 1 || e.count(secret.Expired) != 1 {
			t.Errorf("%+v", s)
		}
		after(30 * time.Hour)
		if s := e.rule(); s.Expired+s.Names > 0 || h.notices.Load() != 2 {
			t.Errorf("%+v, %d notices", s, h.notices.Load())
		}
		e.ca.hang.Store(false)
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
	})
}
