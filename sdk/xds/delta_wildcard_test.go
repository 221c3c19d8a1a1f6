package xds

import (
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// The example of Envoy's xDS protocol, "How the client specifies what resources to return".
func TestDeltaWildcardAndNamesAreSeparateSubscriptions(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		c := b.dialDelta("")
		c.subscribe() // the wildcard, by the older way
		c.gets("a=1", "b=1")
		c.ack()
		c.silent()
		c.subscribe("a")
		c.gets("a=1")
		c.ack()
		c.unsubscribe("*")
		s.set("b", "2")
		s.list("a", "b", "c")
		c.silent()
		s.set("a", "2")
		c.gets("a=2")
		c.unsubscribe("a")
		c.subscribe() // not the wildcard: names were said
		s.set("a", "3")
		c.silent()
		if got := s.watched(); len(got)+len(s.listeners) > 0 {
			t.Errorf("watched %v, want nothing", got)
		}
		c.subscribe("*") // always the wildcard
		c.gets("a=3", "b=2")
	})
}

func TestDeltaWildcardRemovesGoneAndSendsNew(t *testing.T) {
	withCatalog(t, false, func(t *testing.T, b *bench, s *catalog) {
		s.have("a", "b", "c")
		c := b.dialDelta("")
		c.subscribe("*", "c")
		c.gets("a=1", "b=1", "c=1")
		c.ack()
		s.list("a", "c", "d") // b is no longer for this caller
		s.set("d", "1")
		c.gets("-b", "d=1")
		s.set("b", "2")
		c.silent()
		s.delete("a")
		c.gets("-a")
		s.delete("c") // named: told once
		c.gets("-c")
		c.silent()
		s.set("c", "1") // it comes by its name
		c.gets("c=1")
		s.have("a", "b", "c", "d")
		c.gets("a=1", "b=1")
		if refused := b.seen(Refused); len(refused) != 1 || !slices.Equal(refused[0].Client.Names, []string{"c"}) {
			t.Errorf("refusals told: %+v, want c, that was named", refused)
		}
	})
}

func TestFirstDeltaWildcardCanBeEmpty(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		c := b.dialDelta("")
		c.subscribe()
		c.silent() // no list yet
		s.list()
		c.gets()
		c.ack()
		s.tellList()
		c.silent()
	})
}

func TestResubscribedDeltaWildcardResendsAll(t *testing.T) {
	for name, again := range map[string]func(*deltaClient){
		"without unsubscribing": func(c *deltaClient) { c.subscribe("*") },
		"in one request": func(c *deltaClient) {
			c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
				s.have("a", "b")
				c := b.dialDelta("")
				c.subscribe()
				c.gets("a=1", "b=1")
				again(c)
				c.gets("a=1", "b=1")
				c.silent()
			})
		})
	}
}

func TestNameLeftBesideDeltaWildcardIsReported(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		s.set("extra", "1")
		c := b.dialDelta("")
		c.subscribe("*", "a", "extra")
		c.gets("a=1", "b=1", "extra=1")
		c.unsubscribe("a") // the wildcard has it
		c.gets("a=1")
		c.unsubscribe("extra") // the wildcard has it not
		c.gets("-extra")
		c.unsubscribe("b") // cannot be: it was not named
		c.silent()
		s.set("b", "2")
		c.gets("b=2")
	})
}

func TestResubscribedNameIsNotRemoved(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a")
		s.set("extra", "1")
		c := b.dialDelta("")
		c.subscribe("*", "extra")
		s.set("a", "2") // nobody reads
		c.unsubscribe("extra")
		c.subscribe("extra")
		c.gets("a=1", "extra=1")
		c.gets("a=2", "extra=1")
		c.silent()
	})
}

func TestResumedDeltaWildcardRemovesGone(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("same", "changed", "new", "named")
		s.set("changed", "2")
		c := b.dialDelta("")
		c.resume(map[string]string{"same": "1", "changed": "1", "gone": "1", "named": "1"}, "*", "named")
		c.gets("-gone", "changed=2", "new=1")
		c.ack()
		s.tellList()
		c.silent()
	})
}

func TestResumedDeltaWildcardKeepsAllUntilListExists(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		c := b.dialDelta("")
		c.resume(map[string]string{"a": "1", "slow": "1", "gone": "1"})
		c.silent()
		s.set("a", "1")
		s.unready("slow")
		s.list("a", "slow")
		c.gets("-gone")
		c.silent()
		s.set("slow", "1") // what the client has
		c.silent()
		s.set("slow", "2")
		c.gets("slow=2")
	})
}

func TestResumedDeltaWildcardIsSilentWhenUnchanged(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a")
		c := b.dialDelta("")
		c.resume(map[string]string{"a": "1"})
		c.silent()
		s.delete("a")
		c.gets("-a")
	})
}

func TestListedUnknownDeltaNameIsRemovedWhenNamed(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a")
		s.list("a", "unknown")
		c := b.dialDelta("")
		c.subscribe("*")
		c.gets("a=1")
		c.subscribe("unknown")
		c.gets("-unknown")
		s.set("unknown", "1")
		c.gets("unknown=1")
	})
}

func TestUnknownWildcardResourceIsRemoved(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		c := b.dialDelta("")
		c.subscribe("*")
		c.gets("a=1", "b=1")
		s.remove("b") // and is listed still
		c.gets("-b")
		s.notify("b")
		c.silent()
		s.set("b", "1")
		c.gets("b=1")
		if refused := b.seen(Refused); len(refused) > 0 {
			t.Errorf("refusals told: %+v, want none: nobody named it", refused)
		}
	})
}

func TestNameLeftBesideUnlistedWildcardIsReportedLater(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		for _, name := range []string{"listed", "lost", "slow", "unlisted"} {
			s.set(name, "1")
		}
		c := b.dialDelta("")
		c.subscribe("*", "listed", "lost", "slow", "unlisted")
		c.gets("listed=1", "lost=1", "slow=1", "unlisted=1")
		c.unsubscribe("listed", "lost", "slow", "unlisted")
		s.unready("slow")
		s.remove("lost")
		c.silent()
		s.list("listed", "lost", "slow")
		c.gets("-lost", "-unlisted", "listed=1")
		c.silent() // slow may be what the client has
		s.set("slow", "1")
		c.gets("slow=1")
	})
}

// Nobody can tell that a name is gone while the list may have more.
func TestListThatIsNotWholeRemovesNothing(t *testing.T) {
	withCatalog(t, false, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		s.partial("a")
		c := b.dialDelta("")
		c.resume(map[string]string{"b": "1", "gone": "1"}, "*")
		c.gets("a=1")
		c.ack()
		s.list("a", "b")
		c.gets("-gone")
		c.ack()
		s.partial("a")
		s.set("b", "2")
		c.gets("b=2")
		c.ack()
		s.list("a")
		c.gets("-b")
	})
}

func TestCompleteAnswerWaitsForWholeList(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		s.partial("a")
		c := b.dial("")
		c.ask("*")
		c.silent()
		s.list("a", "b")
		c.gets("a=1", "b=1")
	})
}
