package xds

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

func TestDeltaNACKIsReportedAndSendsNothingUntilChange(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.have("a")
		c := b.dialDelta("sidecar")
		c.subscribe("a")
		c.gets("a=1")
		c.nack("bad\nkey")
		c.nack("again")
		b.source.set("a", "1")
		c.silent()
		if nacks := b.seen(Nacked); len(nacks) != 1 || nacks[0].Client.Message != `bad\nkey` || nacks[0].Caller != "sidecar" || nacks[0].Client.Node != "node-1" {
			t.Errorf("the NACK was notified as %+v", nacks)
		}
		b.source.set("a", "2")
		c.gets("a=2")
		c.ack()
		if acks := b.seen(Acked); len(acks) != 1 || acks[0].Version != "2" {
			t.Errorf("acknowledged %v, want version 2 alone", acks)
		}
	})
}

func TestDeltaNACKThatSubscribesGetsOnlyThatName(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("b", "1")
		c := b.holdingDelta("a")
		nonce := c.last.GetNonce()
		c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: nonce, ErrorDetail: refusal("no"), ResourceNamesSubscribe: []string{"b"}})
		c.gets("b=1")
		c.silent()
	})
}

func TestDeltaNACKOfEarlierResponseIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holdingDelta("a")
		first := c.last.GetNonce()
		b.source.set("a", "2")
		c.gets("a=2")
		c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: first, ErrorDetail: refusal("no")})
		c.ack()
		c.silent()
		if nacks, acks := b.seen(Nacked), b.seen(Acked); len(nacks) != 1 || len(acks) != 1 || acks[0].Version != "2" {
			t.Errorf("notified %v and %v, want the refusal of the first and the acknowledgement of the second", nacks, acks)
		}
	})
}

// Unlike in the other dialect, a request's names count whatever its nonce.
func TestForeignDeltaNonceAcknowledgesNothing(t *testing.T) {
	for _, nonce := range []string{"of-an-earlier-stream", "-0-", "zzzzzzzz-0-1"} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.source.set("b", "1")
			c := b.holdingDelta("a")
			c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: nonce, ErrorDetail: refusal("no"), ResourceNamesSubscribe: []string{"b"}})
			c.gets("b=1")
			c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: nonce})
			c.silent()
			if nacks, acks := b.seen(Nacked), b.seen(Acked); len(nacks)+len(acks) != 0 {
				t.Errorf("the nonce %q counted: %v %v", nonce, nacks, acks)
			}
		})
	}
}

func TestStaleDeltaACKIsIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holdingDelta("a")
		first := c.last.GetNonce()
		b.source.set("a", "2")
		c.gets("a=2")
		c.ack()
		c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: first})
		c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: first, ErrorDetail: refusal("no")})
		c.silent()
		if nacks, acks := b.seen(Nacked), b.seen(Acked); len(nacks) != 0 || len(acks) != 1 {
			t.Errorf("notified %v and %v, want one acknowledgement", nacks, acks)
		}
	})
}
