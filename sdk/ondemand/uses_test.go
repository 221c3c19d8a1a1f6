package ondemand_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
)

// usesInMemory keeps uses; it may fail.
type usesInMemory struct {
	text []byte
	err  error
}

func (u *usesInMemory) LoadUses(context.Context) ([]byte, error) { return u.text, u.err }

func (u *usesInMemory) SaveUses(_ context.Context, text []byte) error {
	u.text = text
	return nil
}

// An agent that restarts each day would renew a name without clients for ever.
func TestIdleTimeOutlivesRestarts(t *testing.T) {
	for title, c := range map[string]struct {
		uses  *usesInMemory
		spoil func(*usesInMemory)
		idle  bool
	}{
		"kept":       {&usesInMemory{}, func(*usesInMemory) {}, true},
		"unreadable": {&usesInMemory{}, func(u *usesInMemory) { u.err = errors.New("away") }, false},
		"another":    {&usesInMemory{}, func(u *usesInMemory) { u.text = []byte("\x02 of a later program") }, false},
		"not kept":   {nil, func(*usesInMemory) {}, false},
	} {
		t.Run(title, func(t *testing.T) {
			bubble(t, func(e *engine, conf *ondemand.Config) {
				stored(e, conf)
				conf.Rules[0].Idle = 2 * 24 * time.Hour
				if c.uses != nil {
					conf.Uses = c.uses
				}
			}, func(e *engine) {
				unused := e.subscribe(aShop)
				e.subscribe(bShop)
				e.has(aShop)
				e.has(bShop)
				unused.stop()
				for range 5 {
					after(24 * time.Hour)
					e.Close()
					if c.uses != nil {
						c.spoil(c.uses)
					}
					e.start()
					e.subscribe(bShop)
				}
				after(24 * time.Hour)
				want := 2
				if c.idle {
					want = 1
				}
				if s := e.rule(); s.Held != want {
					t.Errorf("%d names are held 6 days after the last use of one, want %d", s.Held, want)
				}
			})
		})
	}
}

func TestUsesAreSavedWhileItRuns(t *testing.T) {
	uses := &usesInMemory{}
	bubble(t, func(e *engine, c *ondemand.Config) { stored(e, c); c.Uses = uses }, func(e *engine) {
		e.subscribe(aShop)
		e.has(aShop)
		h := e.subscribe(bShop)
		e.has(bShop)
		h.stop()
		after(2 * 24 * time.Hour)
		if len(uses.text) != 1+12 {
			t.Errorf("%d bytes are saved, want those of one name", len(uses.text))
		}
	})
}
