package xds

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

func TestUnchangedContentIsNotPushed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a")
		b.source.have("a", "b")
		c.silent()
	})
}

func TestVersionDependsOnContent(t *testing.T) {
	var versions []string
	for range 2 { // two agents, one after the other
		inBubble(t, func(t *testing.T, b *bench) {
			b.source.have("a", "b")
			one, two := b.dial("one"), b.dial("two")
			one.ask("a", "b")
			two.ask("b", "a")
			one.gets("a=1", "b=1")
			two.gets("a=1", "b=1")
			if one.last.VersionInfo != two.last.VersionInfo {
				t.Errorf("the same content has versions %q and %q", one.last.VersionInfo, two.last.VersionInfo)
			}
			versions = append(versions, one.last.VersionInfo)
			b.source.set("a", "2")
			one.gets("a=2")
			if one.last.VersionInfo != "2" {
				t.Errorf("a single resource's response has version %q, want the resource's", one.last.VersionInfo)
			}
			two.gets("a=2")
		})
	}
	if versions[0] != versions[1] {
		t.Errorf("after a restart the same content has version %q, before %q", versions[1], versions[0])
	}
}

func TestNoncesDifferAfterRestart(t *testing.T) {
	nonces := map[string]bool{}
	for range 2 {
		inBubble(t, func(t *testing.T, b *bench) {
			c := b.holding("a")
			nonces[c.last.Nonce] = true
		})
	}
	if len(nonces) != 2 {
		t.Errorf("two agents used the nonces %v, want different ones", nonces)
	}
}

func TestCallerIsFixedWhenStreamOpens(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.forbid = func(caller, name string) bool { return caller != name }
		b.source.have("alice", "bob")
		c := b.dial("alice")
		c.ask("alice", "bob")
		c.gets("alice=1")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"bob"}, Node: &core.Node{Id: "bob", Cluster: "bob"}})
		c.silent()
	})
}

func TestOnlyNodeOfFirstRequestCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a")
		c.send(&discovery.DiscoveryRequest{
			ResourceNames: []string{"a"}, ResponseNonce: c.last.Nonce, VersionInfo: c.last.VersionInfo,
			Node: &core.Node{Id: strings.Repeat("other", 1000)},
		})
		if acks := b.seen(Acked); len(acks) != 1 || acks[0].Client.Node != "node-1" {
			t.Errorf("acknowledgements: %+v, want one of node-1", acks)
		}
	})
}
