package xds

import (
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The example of Envoy's xDS protocol, "How the client specifies what resources to return".
func TestWildcardAndNamesAreSeparateSubscriptions(t *testing.T) {
	for name, complete := range map[string]bool{"complete": true, "incremental": false} {
		t.Run(name, func(t *testing.T) {
			withCatalog(t, complete, func(t *testing.T, b *bench, s *catalog) {
				s.have("a", "b")
				c := b.dial("")
				c.ask() // the wildcard, by the older way
				c.gets("a=1", "b=1")
				c.ack("*", "a") // goes on, and a is named
				if complete {
					c.gets("a=1", "b=1")
				} else {
					c.gets("a=1")
				}
				c.ack("a") // no wildcard, a goes on
				c.silent()
				if got := s.watched(); !slices.Equal(got, []string{"a"}) {
					t.Errorf("watched %v, want a", got)
				}
				s.set("b", "2")
				s.list("a", "b", "c")
				c.silent()
				s.set("a", "2")
				c.gets("a=2")
				c.ack() // not the wildcard: names were said
				s.set("a", "3")
				c.silent()
				if got := s.watched(); len(got)+len(s.listeners) > 0 {
					t.Errorf("watched %v, want nothing", got)
				}
				c.ack("*") // always the wildcard
				if c.gets("a=3", "b=2"); len(s.listeners) != 1 {
					t.Errorf("%d lists are watched, want one", len(s.listeners))
				}
			})
		})
	}
}

func TestWildcardIsSilentWhileUnchanged(t *testing.T) {
	withCatalog(t, false, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a", "b")
		c := b.dial("")
		c.ask("*")
		c.gets("a=1", "b=1")
		c.ack("*")
		s.list("b", "a")
		s.notify("a")
		c.silent()
		s.set("b", "2")
		c.gets("b=2")
		s.set("b", "1")
		c.gets("b=1")
		s.have("a", "b", "c")
		c.gets("c=1")
		s.delete("a") // has no word for that
		c.silent()
	})
}

func TestNameLeftBesideWildcardIsDeletedByNextAnswer(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.have("a")
		s.set("extra", "1")
		c := b.dial("")
		c.ask("*", "extra")
		c.gets("a=1", "extra=1")
		c.ack("*")
		c.gets("a=1")
		c.ack("*")
		c.ack("*", "a")
		c.gets("a=1") // named: sent again
		c.ack("*", "a")
		c.ack("*") // the wildcard has it still
		c.silent()
	})
}

func TestNameCanBeLeftWithoutList(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.set("a", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.ack("a", "*")
		c.ack("*")
		c.silent()
		s.list()
		c.gets()
		c.silent()
	})
}

func TestResourcesWaitingForListComeWhenWildcardIsLeft(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.set("a", "1")
		s.list()
		c := b.dial("")
		c.ask("*")
		c.gets()
		s.unlist()
		c.ack()
		c.ack("*") // of a list that is not there now
		c.ack("*", "a")
		c.silent()
		c.ack("a")
		c.gets("a=1")
	})
}

func TestListIsPerCaller(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		s.forbid = func(caller, name string) bool { return caller != name }
		s.have("alice", "bob")
		alice, bob := b.dial("alice"), b.dial("bob")
		alice.ask()
		bob.ask()
		alice.gets("alice=1")
		bob.gets("bob=1")
	})
}

func TestWildcardNeedsTypeThatLists(t *testing.T) {
	inBubble(t, func(_ *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dial("")
		c.ask()
		c.ask("*")
		c.silent()
	})
}

func TestListedResourcesDoNotCountAgainstNameLimit(t *testing.T) {
	for name, ask := range map[string]func(*bench) interface{ ends(codes.Code) }{
		"state of the world": func(b *bench) interface{ ends(codes.Code) } {
			c := b.dial("")
			c.ask("*")
			c.gets("a=1", "b=1", "c=1", "d=1")
			c.ack("*", "a")
			c.gets("a=1", "b=1", "c=1", "d=1")
			c.ack("*", "a")
			c.silent()
			c.ask("*", "b")
			c.gets("a=1", "b=1", "c=1", "d=1")
			c.ask("c")
			return c
		},
		"delta": func(b *bench) interface{ ends(codes.Code) } {
			c := b.dialDelta("")
			c.subscribe("*", "a")
			c.gets("a=1", "b=1", "c=1", "d=1")
			c.subscribe("b")
			c.gets("b=1")
			c.unsubscribe("x", "y") // never had
			c.silent()
			c.subscribe("c")
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
				b.engine.cfg.Limits.MaxNames = 2
				s.have("a", "b", "c", "d")
				ask(b).ends(codes.ResourceExhausted)
			})
		})
	}
}

func TestSourceCanEndStreamWhileListing(t *testing.T) {
	withCatalog(t, true, func(_ *testing.T, b *bench, s *catalog) {
		b.engine.cfg.Types[0].Source = endingLister{s}
		c := b.dial("")
		c.ask()
		c.ends(codes.PermissionDenied)
		_, err := b.engine.Fetch(c.t.Context(), &discovery.DiscoveryRequest{}, thingURL)
		if status.Code(err) != codes.PermissionDenied {
			c.t.Errorf("the fetch ended with %v", err)
		}
	})
}

// endingLister ends who lists.
type endingLister struct{ *catalog }

func (endingLister) List(string) ([]string, error) {
	return nil, &EndError{status.Error(codes.PermissionDenied, "no longer")}
}

func TestWildcardFetchWaitsForWholeList(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		done := make(chan []string)
		go func() {
			got, err := b.fetch(t.Context())
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		s.set("a", "1")
		s.unready("slow")
		s.list("a", "slow")
		s.set("slow", "1")
		if got, want := <-done, []string{"a=1", "slow=1"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.list()
		if got, err := b.fetch(t.Context(), "*"); err != nil || len(got) > 0 {
			t.Errorf("got %v, %v, want an empty answer", got, err)
		}
	})
}
