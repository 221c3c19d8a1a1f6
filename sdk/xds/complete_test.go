package xds

import (
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

func TestCompleteAnswerHoldsAllAndOmitsDeleted(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		c := b.dial("")
		c.ask()
		c.gets("a=1", "b=1")
		c.ack()
		c.silent()
		s.set("a", "2")
		c.gets("a=2", "b=1")
		c.ack()
		s.have("c")
		c.gets("c=1") // a and b are gone
		c.ack()
		s.list("c", "a")
		c.gets("a=2", "c=1")
		c.ack()
		s.delete("a")
		c.gets("c=1")
		s.delete("c")
		c.gets()
		c.ack()
		c.silent()
		if acks := b.seen(Acked); len(acks) != 5 {
			t.Errorf("%d acknowledgements, want 5: %v", len(acks), acks)
		}
	})
}

func TestCompleteAnswerCanBeEmpty(t *testing.T) {
	for name, first := range map[string][]string{"nothing named": nil, "star": {"*"}, "star and a name": {"*", "unknown"}, "a name": {"unknown"}} {
		t.Run(name, func(t *testing.T) {
			withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
				s.list()
				c := b.dial("")
				c.ask(first...)
				c.gets()
				c.ack(first...)
				s.tellList()
				c.silent()
			})
		})
	}
}

func TestCompleteAnswerOmitsUnknownNames(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "b", "other")
		c := b.dial("")
		c.ask("a", "b", "unknown")
		c.gets("a=1", "b=1")
		c.ack("a", "b", "unknown")
		s.set("unknown", "1")
		c.gets("a=1", "b=1", "unknown=1")
		c.ack("a", "b", "unknown")
		s.remove("b")
		c.gets("a=1", "unknown=1")
		c.ack("a", "unknown") // unsubscribed: the client has dropped it by itself
		c.silent()
		c.ack("a")
		c.silent()
		s.set("unknown", "2")
		s.set("other", "2")
		c.silent()
		s.set("a", "2")
		c.gets("a=2")
	})
}

func TestCompleteAnswerWaitsForList(t *testing.T) {
	for name, first := range map[string][]string{"nothing named": nil, "star and a name": {"*", "a"}} {
		t.Run(name, func(t *testing.T) {
			withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
				s.set("a", "1")
				s.set("b", "1")
				c := b.dial("")
				c.ask(first...)
				s.set("a", "2")
				c.silent()
				s.list("a", "b")
				c.gets("a=2", "b=1")
				s.unlist() // what was listed stays
				c.silent()
				s.set("a", "3")
				c.gets("a=3", "b=1")
			})
		})
	}
}

func TestCompleteAnswerWaitsForResourcesOfEarlierStream(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "slow")
		s.unready("slow")
		c := b.dial("")
		c.send(&discovery.DiscoveryRequest{VersionInfo: "before"})
		s.set("a", "2")
		c.silent()
		s.set("slow", "1")
		c.gets("a=2", "slow=1")
		c.ack()
		s.unready("late")
		s.list("a", "slow", "late") // it has what it held; what is new it does not wait for
		s.set("a", "3")
		c.gets("a=3", "slow=1")
	})
}

func TestNewClientDoesNotWaitForUnreadyResources(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "slow")
		s.unready("slow")
		c := b.dial("")
		c.ask()
		c.gets("a=1")
		c.ack()
		s.set("slow", "1")
		c.gets("a=1", "slow=1")
	})
}

func TestUnreadyResourceStaysInCompleteAnswer(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		c := b.dial("")
		c.ask()
		c.gets("a=1", "b=1")
		s.unready("a")
		c.silent()
		s.set("b", "2")
		c.gets("a=1", "b=2")
		s.delete("a")
		c.gets("b=2")
	})
}

func TestNACKOfCompleteAnswerSendsNothingUntilChange(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		c := b.dial("")
		c.ask()
		c.gets("a=1", "b=1")
		c.ack()
		s.set("a", "bad")
		c.gets("a=bad", "b=1")
		c.nack("no")
		s.notify("a")
		s.tellList()
		c.silent()
		if nacks := b.seen(Nacked); len(nacks) != 1 || !slices.Equal(nacks[0].Client.Names, []string{"a"}) {
			t.Errorf("refused: %+v, want a alone", nacks)
		}
		s.set("a", "2")
		c.gets("a=2", "b=1")
	})
}

func TestCompleteAnswerIsOneMessageOfAnySize(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		for _, name := range []string{"a", "b", "c"} {
			s.put(&Resource{Name: name, Version: "1", Body: bodyOf(name + string(make([]byte, maxResponse/2)))})
		}
		s.list("a", "b", "c")
		c := b.dial("")
		c.ask()
		r := <-c.responses
		if n := len(r.GetResources()); n != 3 {
			t.Errorf("%d resources in the answer, want 3", n)
		}
		c.silent()
	})
}

func TestChangesForSlowClientBecomeOneCompleteAnswer(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a")
		c := b.dial("")
		c.ask()
		s.have("a", "b")
		s.set("a", "2")
		s.delete("b")
		s.have("c", "a")
		s.set("c", "5")
		c.gets("a=1")
		c.gets("a=1", "c=5")
		c.silent()
	})
}

func TestVersionOfCompleteAnswerCoversItsContent(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		one := b.dial("")
		one.ask()
		one.gets("a=1", "b=1")
		s.set("b", "2")
		one.gets("a=1", "b=2")
		two := b.dial("")
		two.ask("b", "a")
		two.gets("a=1", "b=2")
		if x, y := one.last.GetVersionInfo(), two.last.GetVersionInfo(); x != y {
			t.Errorf("the same content has the versions %q and %q", x, y)
		}
	})
}
