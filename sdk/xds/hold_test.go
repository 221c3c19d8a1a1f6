package xds

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// root and leaf are a bundle of roots and a certificate that chains to one.
func (s *memorySource) root(version string, provides ...string) {
	s.put(&Resource{Name: "root", Version: version, Provides: provides})
}

// untoldRoot is there, its notice comes late.
func (s *memorySource) untoldRoot(version string, provides ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known["root"] = &Resource{Name: "root", Version: version, Body: bodyOf("root=" + version), Provides: provides}
}

func (s *memorySource) leaf(version, needs string) {
	s.put(&Resource{Name: "leaf", Version: version, Needs: needs})
}

// withRootAndLeaf has a client that was sent, and accepted, both.
func withRootAndLeaf(t *testing.T, story func(t *testing.T, b *bench, c speaker)) {
	t.Helper()
	inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
		b.source.root("1", "R1")
		b.source.leaf("1", "R1")
		c.want("leaf", "root")
		c.gets("leaf=1", "root=1") // at first there is nothing to break
		c.accept()
		story(t, b, c)
	})
}

func TestNewRootGoesFirstAndLeafFollowsItsACK(t *testing.T) {
	withRootAndLeaf(t, func(_ *testing.T, b *bench, c speaker) {
		b.source.root("2", "R1", "R2")
		b.source.leaf("2", "R2")
		c.gets("root=2")
		c.silentFor(4 * time.Second)
		c.accept()
		c.gets("leaf=2")
	})
}

func TestLeafNotifiedBeforeItsRootStillFollowsIt(t *testing.T) {
	withRootAndLeaf(t, func(_ *testing.T, b *bench, c speaker) {
		b.source.untoldRoot("2", "R2")
		b.source.leaf("2", "R2")
		c.gets("root=2")
		b.source.notify("root")
		c.silentFor(4 * time.Second)
		c.accept()
		c.gets("leaf=2")
	})
}

func TestLeafWaitsFiveSecondsForUnacknowledgedRoot(t *testing.T) {
	for name, answer := range map[string]func(*bench, speaker){
		"no answer": func(*bench, speaker) {},
		"refused":   func(_ *bench, c speaker) { c.refuse("no") },
		"refused, and another acknowledged": func(b *bench, c speaker) {
			c.refuse("no")
			b.source.set("other", "1")
			c.want("other")
			c.gets("other=1")
			c.accept()
		},
	} {
		t.Run(name, func(t *testing.T) {
			withRootAndLeaf(t, func(_ *testing.T, b *bench, c speaker) {
				b.source.root("2", "R2")
				b.source.leaf("2", "R2")
				c.gets("root=2")
				answer(b, c)
				c.silentFor(4999 * time.Millisecond)
				time.Sleep(time.Millisecond)
				c.gets("leaf=2")
			})
		})
	}
}

func TestRepeatedRootChangesDoNotStarveLeaf(t *testing.T) {
	withRootAndLeaf(t, func(_ *testing.T, b *bench, c speaker) {
		b.source.root("2", "R2")
		b.source.leaf("2", "R2")
		c.gets("root=2")
		for _, version := range []string{"3", "4"} {
			c.silentFor(2 * time.Second)
			b.source.root(version, "R2")
			c.gets("root=" + version)
		}
		time.Sleep(time.Second) // five since the leaf changed
		c.gets("leaf=2")
	})
}

func TestEachLeafWaitsForItsOwnRoot(t *testing.T) {
	for name, order := range map[string][]string{"the first is held first": {"1", "2"}, "the first is held last": {"2", "1"}} {
		t.Run(name, func(t *testing.T) {
			inEachDialect(t, func(_ *testing.T, b *bench, c speaker) {
				b.source.have("root1", "root2", "leaf1", "leaf2")
				c.want("root1", "root2", "leaf1", "leaf2")
				c.gets("leaf1=1", "leaf2=1", "root1=1", "root2=1")
				c.accept()
				for _, n := range []string{"1", "2"} {
					c.silentFor(2 * time.Second)
					b.source.put(&Resource{Name: "root" + n, Version: "2", Provides: []string{n}})
					c.gets("root" + n + "=2")
				}
				for _, n := range order {
					b.source.put(&Resource{Name: "leaf" + n, Version: "2", Needs: n})
				}
				for _, n := range []string{"1", "2"} {
					c.silentFor(map[string]time.Duration{"1": 3 * time.Second, "2": 2 * time.Second}[n] - time.Millisecond)
					time.Sleep(time.Millisecond)
					c.gets("leaf" + n + "=2")
				}
			})
		})
	}
}

func TestLeafWaitsForLastRootItMayNeed(t *testing.T) {
	for range 5 { // in any order
		inEachDialect(t, func(_ *testing.T, b *bench, c speaker) {
			b.source.have("root1", "root2", "leaf")
			c.want("root1", "root2", "leaf")
			c.gets("leaf=1", "root1=1", "root2=1")
			for _, name := range []string{"root1", "root2"} {
				c.silentFor(2 * time.Second)
				b.source.put(&Resource{Name: name, Version: "2", Provides: []string{"R2"}})
				c.gets(name + "=2")
			}
			b.source.leaf("2", "R2")
			c.silentFor(4999 * time.Millisecond)
			time.Sleep(time.Millisecond)
			c.gets("leaf=2")
		})
	}
}

func TestLeafWithHeldRootDoesNotWait(t *testing.T) {
	withRootAndLeaf(t, func(_ *testing.T, b *bench, c speaker) {
		b.source.set("other", "1")
		c.want("other")
		c.gets("other=1")
		c.accept() // the root is in the answer before
		b.source.leaf("2", "R1")
		c.gets("leaf=2")
	})
}

func TestLeafWithoutRootOnStreamDoesNotWait(t *testing.T) {
	inEachDialect(t, func(_ *testing.T, b *bench, c speaker) {
		b.source.root("1", "R1")
		b.source.leaf("1", "R1")
		c.want("leaf")
		c.gets("leaf=1")
		b.source.root("2", "R2")
		b.source.leaf("2", "R2")
		c.gets("leaf=2")
	})
}

func TestResumedLeafWaitsForNewRoot(t *testing.T) {
	inBubble(t, func(_ *testing.T, b *bench) {
		b.source.root("2", "R2")
		b.source.leaf("2", "R2")
		c := b.dialDelta("")
		c.resume(map[string]string{"root": "1", "leaf": "1"}, "leaf", "root")
		c.gets("root=2")
		c.accept()
		c.gets("leaf=2")
	})
}

func TestResumedLeafFollowsRootNotifiedAfterIt(t *testing.T) {
	inBubble(t, func(_ *testing.T, b *bench) {
		b.source.root("1", "R1")
		c := b.dialDelta("")
		c.resume(map[string]string{"root": "1", "leaf": "1"}, "leaf", "root")
		c.silent()
		b.source.untoldRoot("2", "R2")
		b.source.leaf("2", "R2")
		c.gets("root=2")
		c.accept()
		c.gets("leaf=2")
	}, "leaf")
}

func TestLeafDoesNotWaitForResumedRoot(t *testing.T) {
	inBubble(t, func(_ *testing.T, b *bench) {
		b.source.root("1", "R1")
		b.source.leaf("2", "R1")
		c := b.dialDelta("")
		c.resume(map[string]string{"root": "1", "leaf": "1"}, "leaf", "root")
		c.gets("leaf=2")
	})
}

func TestLeafDroppedWhileWaitingIsNotSent(t *testing.T) {
	inBubble(t, func(_ *testing.T, b *bench) {
		b.source.root("1", "R1")
		b.source.leaf("1", "R1")
		c := b.dialDelta("")
		c.subscribe("root", "leaf")
		c.gets("leaf=1", "root=1")
		b.source.root("2", "R2")
		b.source.leaf("2", "R2")
		c.gets("root=2")
		c.unsubscribe("leaf")
		c.ack()
		c.silent()
	})
}

func TestNegativeHoldHoldsNothing(t *testing.T) {
	withHold(t, -1, func(_ *testing.T, b *bench, c speaker) {
		b.source.root("1", "R1")
		b.source.leaf("1", "R1")
		c.want("root", "leaf")
		c.gets("leaf=1", "root=1")
		b.source.root("2", "R2")
		c.gets("root=2")
		b.source.leaf("2", "R2")
		c.gets("leaf=2")
	})
}

func TestEverybodyHasRootWhenEachStreamHasAcknowledged(t *testing.T) {
	withRootAndLeaf(t, func(t *testing.T, b *bench, c speaker) {
		want := func(has bool, names ...string) {
			t.Helper()
			synctest.Wait()
			if got := b.engine.Acknowledged(thingURL, names, "R2"); got != has {
				t.Errorf("everybody has R2 in %q: %t", names, got)
			}
		}
		other := &listing{client: b.dial("other")}
		other.want("root")
		other.gets("root=1")
		other.accept()
		want(true, "nobody's")
		want(false, "root")
		b.source.untoldRoot("2", "R1", "R2")
		want(false, "root") // not sent yet
		b.source.notify("root")
		c.gets("root=2")
		other.gets("root=2")
		want(false, "root")
		c.accept()
		want(false, "root", "nobody's")
		other.refuse("no")
		want(false, "root")
		b.engine.End(func(caller string) bool { return caller == "other" }, errors.New("gone"))
		want(true, "root")
	})
}
