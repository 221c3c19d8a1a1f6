package xds

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClientWithoutACKGetsNextVersion(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.dial("")
		c.ask("a")
		for _, version := range []string{"1", "2", "3"} {
			b.source.set("a", version)
			c.gets("a=" + version)
		}
	}, "a")
}

func TestChangesForSlowClientArriveAsOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dial("")
		c.ask("a")
		synctest.Wait() // version 1 is being sent, nobody reads
		for _, version := range []string{"2", "3", "4", "5"} {
			b.source.set("a", version)
		}
		c.gets("a=1")
		c.gets("a=5")
		c.silent()
	})
}

func TestSlowReaderDelaysNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		slow, quick := b.dial("slow"), b.dial("quick")
		slow.ask("a")
		quick.ask("a")
		quick.gets("a=1")
		b.source.set("a", "2")
		quick.gets("a=2")
		slow.gets("a=1")
		slow.gets("a=2")
	})
}

func TestSlowReaderIsStillListenedTo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dial("")
		c.ask("a")
		for range 50 { // more than fits any window: the requests must be taken in
			c.ask("b")
		}
		b.source.set("b", "1")
		c.gets("a=1")
		c.gets("b=1")
	}, "b")
}

func TestNoNamesAndStarSubscribeToNothing(t *testing.T) {
	for _, names := range [][]string{nil, {"*"}, {""}, {"*", ""}} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.source.set("a", "1")
			c := b.dial("")
			c.ask(names...)
			c.silent()
			b.source.set("a", "2")
			c.silent()
			c.ask("a")
			c.gets("a=2")
		})
	}
}

func TestSlowNameDelaysNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dial("")
		c.ask("slow", "a")
		c.gets("a=1")
		c.ack("slow", "a")
		c.silent()
		b.source.set("slow", "1")
		c.gets("slow=1")
	}, "slow")
}

func TestUnreadyResourceStaysWithClient(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a")
		b.source.unready("a") // expired
		c.silent()
		b.source.set("a", "2")
		c.gets("a=2")
	})
}

func TestRefusedNameIsLeftOutAndStreamStays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dial("")
		c.ask("nobody-configured-this", "a")
		c.gets("a=1")
		c.ack("nobody-configured-this", "a")
		c.silent()
		if refused := b.seen(Refused); len(refused) != 1 || refused[0].Client.Names[0] != "nobody-configured-this" {
			t.Errorf("refusals told: %v, want one", refused)
		}
		b.source.set("nobody-configured-this", "1") // a new config
		c.gets("nobody-configured-this=1")
	})
}

func TestRefusalIsLoggedOnceAMinutePerCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.dial("")
		for _, name := range []string{"x1", "x2", "x3"} {
			c.ask(name)
		}
		if n := strings.Count(b.logged(), "left out"); n != 1 {
			t.Errorf("%d log lines for three refusals at once, want 1", n)
		}
		if n := len(b.seen(Refused)); n != 3 {
			t.Errorf("%d refusals counted, want 3", n)
		}
		c.silent() // a minute
		c.ask("x4\nlevel=ERROR")
		if log := b.logged(); strings.Count(log, "left out") != 2 || !strings.Contains(log, "suppressed=2") {
			t.Errorf("after a minute the log is %q", log)
		}
		if log := b.logged(); strings.Contains(log, "\nlevel=ERROR") {
			t.Errorf("a name broke the log line: %q", log)
		}
	})
}

// Reconnecting begins no new minute.
func TestReconnectingDoesNotRepeatRefusalLog(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for range 20 {
			c := b.dial("")
			c.ask("x")
			c.cancel()
		}
		if n := strings.Count(b.logged(), "left out"); n != 1 {
			t.Errorf("%d log lines for one caller, want 1", n)
		}
		b.dial("other").ask("x")
		if n := strings.Count(b.logged(), "left out"); n != 2 {
			t.Errorf("%d log lines for two callers, want 2", n)
		}
	})
}

func TestLimitedCallersAreBounded(t *testing.T) {
	var c callers
	now := time.Now()
	lines := 0
	for i := range 3 * maxCallers {
		if _, ok := c.of(strconv.Itoa(i), now).refused.allow(now, 1, 1); ok {
			lines++
		}
	}
	if lines != maxCallers+1 || len(c.each) != maxCallers+1 {
		t.Errorf("%d lines, %d callers", lines, len(c.each))
	}
	now = now.Add(time.Minute)
	c.of("new", now).refused.allow(now, 1, 1)
	if len(c.each) > 2 {
		t.Errorf("%d callers are remembered after a minute", len(c.each))
	}
}

func TestNameRefusedLaterIsSilentAndStreamStays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a", "b")
		b.source.remove("a")
		c.silent()
		if n := len(b.seen(Refused)); n != 1 {
			t.Errorf("%d refusals counted, want 1", n)
		}
		b.source.set("b", "2")
		c.gets("b=2")
		b.source.set("a", "1") // back, unchanged: the client still has it
		c.silent()
		b.source.set("a", "2")
		c.gets("a=2")
	})
}
