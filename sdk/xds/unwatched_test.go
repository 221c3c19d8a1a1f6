package xds

import (
	"errors"
	"testing"
)

// refusals makes the source refuse so many watches, and then run a function as another stream might.
func (b *bench) refusals(n int, err error, then func()) {
	b.source.onWatch = func() error {
		if n--; n < 0 {
			return nil
		}
		then()
		return err
	}
}

func TestNameThatAnotherStreamGotAfterARefusedWatchIsWatched(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.refusals(1, ErrUnknown, func() { b.source.have("a") })
		c := b.dialDelta("")
		c.subscribe("a")
		c.gets("a=1")
		b.source.set("a", "2")
		c.gets("a=2")
	})
}

func TestNameThatMayNotBeWatchedIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.have("a")
		b.refusals(2, ErrUnknown, func() {})
		c := b.dialDelta("")
		c.subscribe("a")
		c.gets("-a")
	})
}

// A source whose resources never change need not have them watched.
func TestSourceWithoutNotificationsIsServed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.have("a")
		b.refusals(2, errors.New("nothing changes"), func() {})
		c := b.dialDelta("")
		c.subscribe("a")
		c.gets("a=1")
	})
}
