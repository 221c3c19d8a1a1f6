package xds

import (
	"strings"
	"testing"
	"testing/synctest"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

func TestRequestsWithoutANonceAddNames(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.ask("b") // MOSN: one request for each name
		c.gets("b=1")
		b.shelf.set("a", "2")
		c.gets("a=2")
		b.shelf.set("b", "2")
		c.gets("b=2")
	})
}

func TestACurrentNonceReplacesTheList(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a", "b")
		c.gets("a=1", "b=1")
		c.ack("b")
		b.shelf.set("a", "2")
		c.silent()
		b.shelf.set("b", "2")
		c.gets("b=2")
		if got := b.shelf.watched(); len(got) != 1 || got[0] != "b" {
			t.Errorf("watched %v after a was dropped, want b alone", got)
		}
	})
}

func TestAnEmptyListWithTheCurrentNonceDropsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.ack()
		b.shelf.set("a", "2")
		c.silent()
	})
}

func TestAStaleNonceIsIgnoredBeforeTheAcknowledgement(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		first := c.last
		b.shelf.set("a", "2")
		c.gets("a=2")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"b"}, VersionInfo: first.VersionInfo, ResponseNonce: first.Nonce})
		c.silent() // b is not added
		b.shelf.set("a", "3")
		c.gets("a=3") // a is not dropped
		if acks := b.seen(Acked); len(acks) != 0 {
			t.Errorf("a stale acknowledgement counted: %v", acks)
		}
	})
}

func TestAStaleNonceIsIgnoredAfterTheAcknowledgement(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		first := c.last
		b.shelf.set("a", "2")
		c.gets("a=2")
		c.ack("a")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"b"}, VersionInfo: first.VersionInfo, ResponseNonce: first.Nonce})
		c.silent()
		b.shelf.set("a", "3")
		c.gets("a=3")
	})
}

func TestAStaleNACKIsToldAndItsListIsIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		first := c.last
		b.shelf.set("a", "2")
		c.gets("a=2")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"b"}, ResponseNonce: first.Nonce, ErrorDetail: refusal("no")})
		c.silent()
		c.ack("a")
		if nacks, acks := b.seen(Nacked), b.seen(Acked); len(nacks) != 1 || len(acks) != 1 || acks[0].Version != "2" {
			t.Errorf("told %v and %v, want the refusal of the first and the acknowledgement of the second", nacks, acks)
		}
	})
}

func TestAFirstRequestAfterAReconnectIsAnsweredWithEverythingItLists(t *testing.T) {
	for _, nonce := range []string{"", "of-an-earlier-stream"} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.shelf.set("a", "1")
			b.shelf.set("b", "1")
			c := b.dial("")
			c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"a", "b"}, VersionInfo: "1", ResponseNonce: nonce})
			c.gets("a=1", "b=1")
		})
	}
}

func TestANameAddedLaterIsAnsweredAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.ack("a", "b")
		c.gets("b=1")
		c.ack("a", "b")
		c.silent()
	})
}

func TestARequestThatCrossesItsAnswerIsNotAnsweredTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a")
		c.ask("a", "b") // the answer to the first is under way
		c.gets("a=1")
		c.gets("b=1")
		c.silent()
	})
}

func TestANameAskedForAfreshAfterItsAcknowledgementIsSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.ack("a")
		c.ask("a") // neither nonce nor version: the client has forgotten it
		c.gets("a=1")
	})
}

func TestAClientWhoseAcknowledgementsLackTheNonceDoesNotLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"a"}, VersionInfo: "1"})
		c.silent()
	})
}

func TestADroppedNameIsSilentAndSentAgainWhenTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a", "b")
		c.gets("a=1", "b=1")
		c.ack("b")
		c.silent()
		c.ack("a", "b")
		c.gets("a=1")
	})
}

func TestANACKSendsNothingUntilTheContentChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
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
		if n := nacks[0]; n.Caller != "sidecar" || n.Node != "node-1" || n.Version != "1" || !strings.HasPrefix(n.Reason, `bad\nkey x`) || len(n.Reason) > 300 {
			t.Errorf("the NACK was told as %+v", n)
		}
		if log := b.logged(); !strings.Contains(log, `bad\\nkey x`) || !strings.Contains(log, "sidecar") {
			t.Errorf("the NACK was logged as %q", log)
		}
		b.shelf.set("a", "2")
		c.gets("a=2")
		c.ack("a")
		if acks := b.seen(Acked); len(acks) != 1 || acks[0].Version != "2" {
			t.Errorf("acknowledged %v, want version 2 alone", acks)
		}
	})
}

func TestANACKThatAddsANameGetsThatNameAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.nack("no", "a", "b")
		c.gets("b=1")
	})
}

func TestAClientThatNeverAcknowledgesGetsTheNextVersion(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.dial("")
		c.ask("a")
		for _, version := range []string{"1", "2", "3"} {
			b.shelf.set("a", version)
			c.gets("a=" + version)
		}
	}, "a")
}

func TestManyChangesWhileTheClientIsSlowArriveAsOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		synctest.Wait() // version 1 is being sent, nobody reads
		for _, version := range []string{"2", "3", "4", "5"} {
			b.shelf.set("a", version)
		}
		c.gets("a=1")
		c.gets("a=5")
		c.silent()
	})
}

func TestASlowReaderHoldsUpNobodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		slow, quick := b.dial("slow"), b.dial("quick")
		slow.ask("a")
		quick.ask("a")
		quick.gets("a=1")
		b.shelf.set("a", "2")
		quick.gets("a=2")
		slow.gets("a=1")
		slow.gets("a=2")
	})
}

func TestASlowReaderIsStillListenedTo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		for range 50 { // more than fits any window: the requests must be taken in
			c.ask("b")
		}
		b.shelf.set("b", "1")
		c.gets("a=1")
		c.gets("b=1")
	}, "b")
}

func TestNoNamesAndAStarAreNoSubscription(t *testing.T) {
	for _, names := range [][]string{nil, {"*"}, {""}, {"*", ""}} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.shelf.set("a", "1")
			c := b.dial("")
			c.ask(names...)
			c.silent()
			b.shelf.set("a", "2")
			c.silent()
			c.ask("a")
			c.gets("a=2")
		})
	}
}

func TestASlowNameHoldsNoOtherUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("slow", "a")
		c.gets("a=1")
		c.ack("slow", "a")
		c.silent()
		b.shelf.set("slow", "1")
		c.gets("slow=1")
	}, "slow")
}

func TestWhatIsNoLongerReadyStaysWithTheClient(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		b.shelf.unready("a") // expired
		c.silent()
		b.shelf.set("a", "2")
		c.gets("a=2")
	})
}

func TestARefusedNameIsLeftOutAndTheStreamStays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("nobody-configured-this", "a")
		c.gets("a=1")
		c.ack("nobody-configured-this", "a")
		c.silent()
		if refused := b.seen(Refused); len(refused) != 1 || refused[0].Names[0] != "nobody-configured-this" {
			t.Errorf("refusals told: %v, want one", refused)
		}
		b.shelf.set("nobody-configured-this", "1") // a new config
		c.gets("nobody-configured-this=1")
	})
}

func TestARefusalIsLoggedOnceAMinuteForAStream(t *testing.T) {
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
		if log := b.logged(); strings.Count(log, "left out") != 2 || !strings.Contains(log, "others_since_last_log=2") {
			t.Errorf("after a minute the log is %q", log)
		}
		if log := b.logged(); strings.Contains(log, "\nlevel=ERROR") {
			t.Errorf("a name broke the log line: %q", log)
		}
	})
}

func TestANameRefusedOrDeletedLaterIsSilentAndTheStreamStays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c := b.dial("")
		c.ask("a", "b")
		c.gets("a=1", "b=1")
		b.shelf.remove("a")
		c.silent()
		if n := len(b.seen(Refused)); n != 1 {
			t.Errorf("%d refusals counted, want 1", n)
		}
		b.shelf.set("b", "2")
		c.gets("b=2")
		b.shelf.set("a", "1") // back, unchanged: the client still has it
		c.silent()
		b.shelf.set("a", "2")
		c.gets("a=2")
	})
}

func TestUnchangedContentIsNoPush(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		b.shelf.set("a", "1")
		b.shelf.set("b", "1")
		c.silent()
	})
}

func TestTheVersionIsOfTheContent(t *testing.T) {
	var versions []string
	for range 2 { // two agents, one after the other
		inBubble(t, func(t *testing.T, b *bench) {
			b.shelf.set("a", "1")
			b.shelf.set("b", "1")
			one, two := b.dial("one"), b.dial("two")
			one.ask("a", "b")
			two.ask("b", "a")
			one.gets("a=1", "b=1")
			two.gets("a=1", "b=1")
			if one.last.VersionInfo != two.last.VersionInfo {
				t.Errorf("the same content has versions %q and %q", one.last.VersionInfo, two.last.VersionInfo)
			}
			versions = append(versions, one.last.VersionInfo)
			b.shelf.set("a", "2")
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

func TestNoncesDifferAfterARestart(t *testing.T) {
	nonces := map[string]bool{}
	for range 2 {
		inBubble(t, func(t *testing.T, b *bench) {
			b.shelf.set("a", "1")
			c := b.dial("")
			c.ask("a")
			c.gets("a=1")
			nonces[c.last.Nonce] = true
		})
	}
	if len(nonces) != 2 {
		t.Errorf("two agents used the nonces %v, want different ones", nonces)
	}
}

func TestTheCallerIsFixedWhenTheStreamOpens(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.forbid = func(caller, name string) bool { return caller != name }
		b.shelf.set("alice", "1")
		b.shelf.set("bob", "1")
		c := b.dial("alice")
		c.ask("alice", "bob")
		c.gets("alice=1")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"bob"}, Node: &core.Node{Id: "bob", Cluster: "bob"}})
		c.silent()
	})
}

func TestOnlyTheNodeOfTheFirstRequestCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.shelf.set("a", "1")
		c := b.dial("")
		c.ask("a")
		c.gets("a=1")
		c.send(&discovery.DiscoveryRequest{
			ResourceNames: []string{"a"}, ResponseNonce: c.last.Nonce, VersionInfo: c.last.VersionInfo,
			Node: &core.Node{Id: strings.Repeat("other", 1000)},
		})
		if acks := b.seen(Acked); len(acks) != 1 || acks[0].Node != "node-1" {
			t.Errorf("acknowledgements: %+v, want one of node-1", acks)
		}
	})
}
