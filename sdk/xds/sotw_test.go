package xds

import (
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

func TestRequestsWithoutNonceAddNames(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("b", "1")
		c := b.holding("a")
		c.ask("b") // MOSN: one request for each name
		c.gets("b=1")
		b.source.set("a", "2")
		c.gets("a=2")
		b.source.set("b", "2")
		c.gets("b=2")
	})
}

func TestCurrentNonceReplacesList(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a", "b")
		c.ack("b")
		b.source.set("a", "2")
		c.silent()
		b.source.set("b", "2")
		c.gets("b=2")
		if got := b.source.watched(); len(got) != 1 || got[0] != "b" {
			t.Errorf("watched %v after a was dropped, want b alone", got)
		}
	})
}

func TestEmptyListWithCurrentNonceDropsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a")
		c.ack()
		b.source.set("a", "2")
		c.silent()
	})
}

// overtaken is a client that was sent another version of a after the first response; b is
// there, too.
func overtaken(b *bench) (c *client, first *discovery.DiscoveryResponse) {
	b.t.Helper()
	b.source.set("b", "1")
	c = b.holding("a")
	first = c.last
	b.source.set("a", "2")
	c.gets("a=2")
	return c, first
}

func TestStaleNonceIsIgnoredBeforeACK(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, first := overtaken(b)
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"b"}, VersionInfo: first.VersionInfo, ResponseNonce: first.Nonce})
		c.silent() // b is not added
		b.source.set("a", "3")
		c.gets("a=3") // a is not dropped
		if acks := b.seen(Acked); len(acks) != 0 {
			t.Errorf("a stale acknowledgement counted: %v", acks)
		}
	})
}

func TestStaleNonceIsIgnoredAfterACK(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, first := overtaken(b)
		c.ack("a")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"b"}, VersionInfo: first.VersionInfo, ResponseNonce: first.Nonce})
		c.silent()
		b.source.set("a", "3")
		c.gets("a=3")
	})
}

func TestStaleNACKIsReportedAndItsListIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, first := overtaken(b)
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"b"}, ResponseNonce: first.Nonce, ErrorDetail: refusal("no")})
		c.silent()
		c.ack("a")
		if nacks, acks := b.seen(Nacked), b.seen(Acked); len(nacks) != 1 || len(acks) != 1 || acks[0].Version != "2" {
			t.Errorf("notified %v and %v, want the refusal of the first and the acknowledgement of the second", nacks, acks)
		}
	})
}

func TestFirstRequestAfterReconnectGetsEverythingListed(t *testing.T) {
	for _, nonce := range []string{"", "of-an-earlier-stream"} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.source.have("a", "b")
			c := b.dial("")
			c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"a", "b"}, VersionInfo: "1", ResponseNonce: nonce})
			c.gets("a=1", "b=1")
		})
	}
}

func TestNameAddedLaterIsAnsweredAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("b", "1")
		c := b.holding("a")
		c.ack("a", "b")
		c.gets("b=1")
		c.ack("a", "b")
		c.silent()
	})
}

func TestRequestCrossingItsAnswerIsNotAnsweredTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.have("a", "b")
		c := b.dial("")
		c.ask("a")
		c.ask("a", "b") // the answer to the first is under way
		c.gets("a=1")
		c.gets("b=1")
		c.silent()
	})
}

func TestReaskedNameIsSentAgainAfterACK(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a")
		c.ack("a")
		c.ask("a") // neither nonce nor version: the client has forgotten it
		c.gets("a=1")
	})
}

// A client may answer before Send has returned.
func TestReaskedNameIsSentAgainThoughItsSenderIsSlow(t *testing.T) {
	m := &sotw{newSession([]policy{{url: thingURL, answers: &answers{}}}, thingURL, "x", fuzzLimits)}
	request := func(req *discovery.DiscoveryRequest) step {
		t.Helper()
		st, err := m.request(req)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	now := time.Unix(0, 0)
	request(&discovery.DiscoveryRequest{ResourceNames: []string{"a"}})
	m.changed(0, "a")
	if next, ok := m.due(now); !ok || len(next.names) != 1 {
		t.Fatalf("due: %+v", next)
	}
	answer, _, ok := m.respond(0, []lookup{fuzzLookup("a")}, now)
	if !ok {
		t.Fatal("no response")
	}
	request(&discovery.DiscoveryRequest{ResourceNames: []string{"a"}, VersionInfo: answer.GetVersionInfo(), ResponseNonce: answer.GetNonce()})
	st := request(&discovery.DiscoveryRequest{ResourceNames: []string{"a"}})
	if next, ok := m.due(now); !st.woken || !ok || len(next.names) != 1 {
		t.Errorf("asked for again, due: %+v", next)
	}
}

// Older clients of Istio's ask so, whatever they answered or did not answer before.
func TestRequestWithoutNonceGetsFullAnswerOnUsedStream(t *testing.T) {
	for name, answer := range map[string]func(*client){
		"unanswered":   func(*client) {},
		"acknowledged": func(c *client) { c.ack("a", "b") },
		"refused":      func(c *client) { c.nack("no", "a", "b"); c.takes() },
		"changed back": func(c *client) { c.ack("a", "b"); c.ask("a"); c.gets("a=1") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(_ *testing.T, b *bench) {
				c := b.holding("a", "b")
				answer(c)
				c.ask("a", "b")
				c.gets("a=1", "b=1")
				c.silent()
			})
		})
	}
}

func TestACKsWithoutNonceDoNotLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"a"}, VersionInfo: "1"})
		c.silent()
	})
}

func TestDroppedNameIsSilentAndSentAgainWhenTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.holding("a", "b")
		c.ack("b")
		c.silent()
		c.ack("a", "b")
		c.gets("a=1")
	})
}

func TestNACKSendsNothingUntilContentChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		c := b.dial("sidecar")
		c.ask("a")
		c.gets("a=1")
		c.nack("bad\nkey "+strings.Repeat("x", 1000), "a")
		c.nack("again", "a")
		c.silent()
		nacks := b.seen(Nacked)
		if len(nacks) != 1 {
			t.Fatalf("counted %d NACKs, want one for the response: %v", len(nacks), nacks)
		}
		if n := nacks[0]; n.Caller != "sidecar" || n.Client.Node != "node-1" || n.Version != "1" || !strings.HasPrefix(n.Client.Message, `bad\nkey x`) || len(n.Client.Message) > 300 {
			t.Errorf("the NACK was notified as %+v", n)
		}
		if log := b.logged(); !strings.Contains(log, `bad\\nkey x`) || !strings.Contains(log, "sidecar") {
			t.Errorf("the NACK was logged as %q", log)
		}
		b.source.set("a", "2")
		c.gets("a=2")
		c.ack("a")
		if acks := b.seen(Acked); len(acks) != 1 || acks[0].Version != "2" {
			t.Errorf("acknowledged %v, want version 2 alone", acks)
		}
	})
}

func TestNACKAddingANameGetsOnlyThatName(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("b", "1")
		c := b.holding("a")
		c.nack("no", "a", "b")
		c.gets("b=1")
	})
}
