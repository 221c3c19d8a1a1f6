package ondemand_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// spelling returns the i-th way to write a.shop.example.org in upper and lower case; 0 is the folded name.
func spelling(i int) string {
	name := []byte("a.shop.example.org")
	at := 0
	for ; i > 0; i /= 2 {
		for name[at] == '.' {
			at++
		}
		if i%2 == 1 {
			name[at] -= 'a' - 'A'
		}
		at++
	}
	return string(name)
}

// A proxy passes a name on as its client wrote it, and holds each spelling as a name of its own.
func TestSpellingsOfANameAreBounded(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		var all []*handshake
		for i := 1; i <= 16; i++ {
			all = append(all, e.subscribe(spelling(i)))
		}
		item := e.has(spelling(16))
		if h := e.subscribe(spelling(17)); !errors.Is(h.err, secret.ErrUnknown) {
			t.Errorf("the 17th spelling: %v", h.err)
		}
		e.answer(spelling(17), secret.ErrUnknown)
		e.refused(map[ondemand.Refusal]uint64{ondemand.Spelling: 1})

		again := e.subscribe(spelling(1))
		if folded := e.subscribe(spelling(0)); folded.err != nil || again.err != nil {
			t.Errorf("the folded name: %v; a spelling that is subscribed to: %v", folded.err, again.err)
		}
		all[0].stop()
		if h := e.subscribe(spelling(18)); h.err == nil {
			t.Error("a spelling with a subscription left made room for another one")
		}
		again.stop()
		again.stop()
		e.answer(spelling(1), secret.ErrUnknown)
		if h := e.subscribe(spelling(18)); h.err != nil {
			t.Errorf("after a spelling has ended: %v", h.err)
		}
		if e.has(spelling(18)) != item {
			t.Error("a spelling has another certificate")
		}
		e.orders(1)
	})
}

// A stream has room for the names of all rules and as many spellings.
func TestSpellingsOfAllNamesAreBounded(t *testing.T) {
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Names = 5 }, func(e *engine) {
		var all []*handshake
		for i := range 3 {
			all = append(all, e.subscribe(fmt.Sprintf("A%d.shop.example.org", i)), e.subscribe(fmt.Sprintf("a%d.SHOP.example.org", i)))
		}
		for i, h := range all {
			if (h.err != nil) != (i == 5) {
				t.Errorf("spelling %d: %v", i, h.err)
			}
		}
		all[0].stop()
		if h := e.subscribe("NEW.shop.example.org"); h.err != nil {
			t.Error(h.err)
		}
		e.has("NEW.shop.example.org")
	})
}
