package xds

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
)

func TestDeltaSubscriptionsAddUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("b", "1")
		c := b.holdingDelta("a")
		c.ack()
		c.subscribe("b")
		c.gets("b=1")
		b.source.set("a", "2")
		c.gets("a=2")
	})
}

func TestDeltaPushesOnlyWhatChanged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holdingDelta("a", "b")
		c.ack()
		b.source.have("b", "other")
		c.silent()
		b.source.set("b", "2")
		c.gets("b=2")
	})
}

func TestDeltaUnsubscribedNameIsSilentAndUnwatched(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holdingDelta("a", "b")
		c.unsubscribe("a", "never-subscribed")
		b.source.set("a", "2")
		b.source.remove("a")
		c.silent()
		if got := b.source.watched(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("watched %v after a was unsubscribed, want b alone", got)
		}
	})
}

func TestDeltaResubscribedNameIsSentAgain(t *testing.T) {
	for name, again := range map[string]func(*deltaClient){
		"after unsubscribing": func(c *deltaClient) { c.unsubscribe("a"); c.subscribe("a") },
		"without":             func(c *deltaClient) { c.subscribe("a") },
		"in one request": func(c *deltaClient) {
			c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"a"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				c := b.holdingDelta("a")
				c.ack()
				again(c)
				c.gets("a=1")
				b.source.set("a", "2")
				c.gets("a=2")
				c.silent()
			})
		})
	}
}

func TestEmptyFirstDeltaRequestIsSilent(t *testing.T) {
	for name, first := range map[string][]string{"no names": nil, "star": {"*"}, "empty name": {""}, "both": {"*", ""}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.source.set("a", "1")
				c := b.dialDelta("")
				c.subscribe(first...)
				b.source.set("a", "2")
				c.silent()
				c.unsubscribe("*")
				c.subscribe("a")
				c.gets("a=2")
			})
		})
	}
}

func TestUnknownDeltaNamesAreRemovedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dialDelta("")
		c.subscribe("nobody-configured-this", "a")
		c.gets("-nobody-configured-this", "a=1")
		c.ack()
		b.source.notify("nobody-configured-this")
		c.silent()
		if refused := b.seen(Refused); len(refused) != 1 || refused[0].Client.Names[0] != "nobody-configured-this" {
			t.Errorf("refusals told: %v, want one", refused)
		}
		c.subscribe("nobody-configured-this") // asked again, told again
		c.gets("-nobody-configured-this")
		b.source.set("nobody-configured-this", "1") // a new config
		c.gets("nobody-configured-this=1")
	})
}

func TestDeltaNameRefusedLaterIsRemovedAndComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holdingDelta("a", "b")
		b.source.remove("a")
		c.gets("-a")
		b.source.set("b", "2")
		c.gets("b=2")
		b.source.set("a", "1") // back, unchanged: the client has dropped it
		c.gets("a=1")
	})
}

func TestUnreadyDeltaNameIsSentLaterAndBlocksNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dialDelta("")
		c.subscribe("slow", "a")
		c.gets("a=1")
		c.silent()
		b.source.set("slow", "1")
		c.gets("slow=1")
	}, "slow")
}

func TestDeltaClientWithoutACKGetsLastOfManyChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dialDelta("")
		c.subscribe("a")
		synctest.Wait() // version 1 is being sent, nobody reads
		for _, version := range []string{"2", "3", "4"} {
			b.source.set("a", version)
		}
		c.gets("a=1")
		c.gets("a=4")
		c.silent()
	})
}

func TestDeltaCallerIsFixedWhenStreamOpens(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.forbid = func(caller, name string) bool { return caller != name }
		b.source.have("alice", "bob")
		c := b.dialDelta("alice")
		c.subscribe("alice", "bob")
		c.gets("-bob", "alice=1")
		c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"bob"}, Node: &core.Node{Id: "bob", Cluster: "bob"}})
		c.gets("-bob")
		c.ack()
		if acks := b.seen(Acked); len(acks) != 1 || acks[0].Client.Node != "node-1" {
			t.Errorf("acknowledgements: %+v, want one of node-1", acks)
		}
	})
}

func TestDeltaNamesPerStreamAreLimited(t *testing.T) {
	for name, ask := range map[string]func(*deltaClient){
		"at once":      func(c *deltaClient) { c.subscribe("a", "b", "c", "d") },
		"one by one":   func(c *deltaClient) { c.subscribe("a", "b", "c"); c.subscribe("d") },
		"unsubscribed": func(c *deltaClient) { c.unsubscribe("a", "b", "c", "d") },
		"brought":      func(c *deltaClient) { c.resume(map[string]string{"a": "", "b": "", "c": "", "d": ""}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, Config[string]{Limits: Limits{MaxNames: 3}}, newMemorySource("a", "b", "c", "d"))
				c := b.dialDelta("")
				c.subscribe("a")
				c.unsubscribe("a")
				ask(c)
				c.ends(codes.ResourceExhausted)
			})
		})
	}
}

// The names that such a request drops were watched on for good.
func TestDeltaRequestOverLimitLeavesNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config[string]{Limits: Limits{MaxNames: 3}}, newMemorySource())
		c := b.dialDelta("")
		c.subscribe("a", "b", "c")
		c.send(&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"a"}, ResourceNamesSubscribe: []string{"d", "e"}})
		c.ends(codes.ResourceExhausted)
		if watched := b.source.watched(); len(watched) > 0 {
			t.Errorf("%v are still watched", watched)
		}
	})
}

func TestFullDeltaStreamExchangesNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config[string]{Limits: Limits{MaxNames: 3}}, newMemorySource())
		b.source.have("a", "b", "c", "d", "e")
		c := b.dialDelta("")
		c.subscribe("a", "b", "c")
		c.gets("a=1", "b=1", "c=1")
		c.send(&discovery.DeltaDiscoveryRequest{
			ResourceNamesUnsubscribe: []string{"a", "b", "b"}, ResourceNamesSubscribe: []string{"d", "b", strings.Repeat("x", 8301)},
		})
		c.gets("b=1", "d=1")
		if watched := b.source.watched(); !slices.Equal(watched, []string{"b", "c", "d"}) {
			t.Errorf("%v are watched", watched)
		}
	})
}

func TestOverlongDeltaNameIsRefusedAndOthersServed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dialDelta("")
		c.subscribe(strings.Repeat("x", 8301), "a")
		c.gets("a=1")
		if refused := b.seen(Refused); len(refused) != 1 || len(refused[0].Client.Names[0]) > 300 {
			t.Errorf("refusals told: %v, want one, cut", refused)
		}
	})
}
