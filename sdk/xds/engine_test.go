package xds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestEngineNeedsTypeAndAdmit(t *testing.T) {
	admit := func(context.Context) (string, error) { return "", nil }
	thing := Type[string]{URL: thingURL, Source: newMemorySource()}
	for want, cfg := range map[string]Config[string]{
		"Admit is required": {Types: []Type[string]{thing}},
		"Types is empty":    {Admit: admit},
		"needs a URL":       {Admit: admit, Types: []Type[string]{thing, {Source: newMemorySource()}}},
		"and a Source":      {Admit: admit, Types: []Type[string]{{URL: thingURL}}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestUnadmittedCallerIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := status.Error(codes.PermissionDenied, "no")
		b := newBench(t, Config[string]{Admit: func(context.Context) (string, error) { return "", no }}, newMemorySource())
		b.dial("").ends(codes.PermissionDenied)
		b.dialDelta("").ends(codes.PermissionDenied)
		if _, err := b.engine.Fetch(t.Context(), &discovery.DiscoveryRequest{}, thingURL); !errors.Is(err, no) {
			t.Errorf("a fetch ends with %v", err)
		}
		if n := b.engine.Streams(); n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
}

func TestEndEndsStreamsOfMatchingCallers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		one, two, three := b.dial("alice"), b.dialDelta("alice"), b.dial("bob")
		one.ask("a")
		one.gets("a=1")
		denied := status.Error(codes.PermissionDenied, "no longer")
		if n := b.engine.End(func(caller string) bool { return caller == "alice" }, denied); n != 2 {
			t.Errorf("%d streams ended, want 2", n)
		}
		one.ends(codes.PermissionDenied)
		two.ends(codes.PermissionDenied)
		three.ask("a")
		three.gets("a=1")
	})
}

// What ends callers changes first what they are admitted by: who was admitted by what was
// before, and is not known to the engine yet, must not slip through.
func TestCallerIsReadmittedAfterConcurrentEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := status.Error(codes.PermissionDenied, "no longer")
		var b *bench
		asked := 0
		b = newBench(t, Config[string]{Admit: func(context.Context) (string, error) {
			if asked++; asked%2 == 1 {
				b.engine.End(func(string) bool { return true }, denied)
				return "alice", nil
			}
			return "", denied
		}}, newMemorySource("a"))
		b.dial("").ends(codes.PermissionDenied)
		b.dialDelta("").ends(codes.PermissionDenied)
		if _, err := b.engine.Fetch(t.Context(), &discovery.DiscoveryRequest{ResourceNames: []string{"a"}}, thingURL); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a fetch ends with %v", err)
		}
		if asked != 6 {
			t.Errorf("three callers were admitted %d times, want twice each", asked)
		}
		b.engine.Close(nil)
	})
}

func TestSourceCanEndStreamOfCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		alice, late, bob := b.dial("alice"), b.dialDelta("alice"), b.dial("bob")
		alice.ask("a")
		alice.gets("a=1")
		bob.ask("a")
		bob.gets("a=1")
		b.source.endAlice()
		alice.ends(codes.Unauthenticated)
		late.subscribe("a")
		late.ends(codes.Unauthenticated)
		bob.silent()
		ctx := context.WithValue(t.Context(), callerKey{}, "alice")
		_, err := b.engine.Fetch(ctx, &discovery.DiscoveryRequest{ResourceNames: []string{"a"}}, thingURL)
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("a fetch ends with %v", err)
		}
	})
}

func TestOnlySilentStreamsAreEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		gone := status.Error(codes.Unavailable, "silent")
		mute, deaf, well := b.dial("mute"), b.dial("deaf"), b.dial("well")
		deaf.ask("a")
		deaf.gets("a=1")
		well.ask("a")
		well.gets("a=1")
		well.ack("a")
		time.Sleep(time.Minute)
		if n := b.engine.EndSilent(time.Now().Add(-time.Minute), gone); n != 0 {
			t.Errorf("%d streams were ended too early", n)
		}
		time.Sleep(time.Second)
		if n := b.engine.EndSilent(time.Now().Add(-time.Minute), gone); n != 2 {
			t.Errorf("%d streams were ended, want 2", n)
		}
		mute.ends(codes.Unavailable)
		deaf.ends(codes.Unavailable)
		b.source.set("a", "2")
		well.gets("a=2")
	})
}

func TestCloseEndsAllAndRefusesNewStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config[string]{}, newMemorySource("slow"))
		open := b.dialDelta("")
		open.subscribe("slow")
		fetched := make(chan error, 1)
		go func() {
			_, err := b.engine.Fetch(t.Context(), &discovery.DiscoveryRequest{ResourceNames: []string{"slow"}}, thingURL)
			fetched <- err
		}()
		synctest.Wait()
		b.engine.Close(status.Error(codes.Aborted, "restarting"))
		b.engine.Close(nil)
		open.ends(codes.Aborted)
		b.dial("").ends(codes.Aborted)
		if err := <-fetched; status.Code(err) != codes.Aborted {
			t.Errorf("the fetch ended with %v", err)
		}
	})
}

func TestStreamEndedByClientEndsWithOK(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.dial("")
		c.ask("a")
		close(c.requests)
		c.ends(codes.OK)
		if closed := b.seen(Closed); len(closed) != 1 || closed[0].Err != nil || closed[0].Client.Node != "node-1" {
			t.Errorf("notified %+v", closed)
		}
	})
}

func TestFirstRequestIsLimited(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		req    *discovery.DiscoveryRequest
		want   codes.Code
	}{
		"long node id": {Limits{}, &discovery.DiscoveryRequest{Node: &core.Node{Id: strings.Repeat("x", 1025)}}, codes.InvalidArgument},
		"no node":      {Limits{RequireNode: true}, &discovery.DiscoveryRequest{}, codes.InvalidArgument},
		"other type":   {Limits{}, &discovery.DiscoveryRequest{TypeUrl: "type.googleapis.com/other"}, codes.InvalidArgument},
		"many names":   {Limits{MaxNames: 2}, &discovery.DiscoveryRequest{ResourceNames: []string{"a", "b", "c"}}, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, Config[string]{Limits: c.limits}, newMemorySource())
				client := b.dial("")
				client.send(c.req)
				client.ends(c.want)
			})
		})
	}
}

func TestAggregatedPushFollowsOrderOfTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newMemorySource(), newMemorySource()
		b := newBench(t, Config[string]{Types: []Type[string]{{URL: "first", Source: first}, {URL: "second", Source: second}}}, nil)
		first.set("a", "1")
		second.set("b", "1")
		c := b.dialAs("", "")
		c.send(&discovery.DiscoveryRequest{TypeUrl: "not-served", ResourceNames: []string{"x"}})
		c.send(&discovery.DiscoveryRequest{TypeUrl: "second", ResourceNames: []string{"b"}})
		c.gets("b=1")
		c.send(&discovery.DiscoveryRequest{TypeUrl: "first", ResourceNames: []string{"a"}})
		synctest.Wait() // a=1 is being sent, nobody reads
		second.set("b", "2")
		first.set("a", "2")
		c.gets("a=1")
		c.gets("a=2")
		c.gets("b=2")
		c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"x"}})
		c.ends(codes.InvalidArgument)
	})
}

func TestOversizedResponseIsSplit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		big := strings.Repeat("x", maxResponse/2)
		names := []string{"a", "b", "c"}
		for _, name := range names {
			b.source.put(&Resource{Name: name, Version: "1", Body: bodyOf(name + big)})
		}
		one, two := b.dial(""), b.dialDelta("")
		one.ask(names...)
		two.subscribe(names...)
		for _, name := range names {
			one.gets(name + big)
			two.gets(name + "=1 with the body " + name + big)
		}
		one.silent()
		two.silent()
	})
}

func TestUnreadSubscriptionChangesDoNotAccumulate(t *testing.T) {
	m := &delta{newSession([]policy{{url: thingURL, removes: true}}, thingURL, "x", Limits{}.orDefaults())}
	for range 10_000 {
		for _, req := range []*discovery.DeltaDiscoveryRequest{{ResourceNamesSubscribe: []string{"a"}}, {ResourceNamesUnsubscribe: []string{"a"}}} {
			st, err := m.request(req)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range st.added {
				m.changed(st.typ, e.name)
			}
		}
	}
	if n := cap(m.types[0].dirty); n > 100 {
		t.Errorf("%d entries wait", n)
	}
}

// fetch asks once, on an engine of a memorySource.
func (b *bench) fetch(ctx context.Context, names ...string) ([]string, error) {
	response, err := b.engine.Fetch(ctx, &discovery.DiscoveryRequest{ResourceNames: names}, thingURL)
	return contents(response), err
}

func TestFetchWaitsForUnreadyAndOmitsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.source.set("a", "1")
		time.AfterFunc(time.Hour, func() { b.source.set("slow", "1") })
		got, err := b.fetch(t.Context(), "a", "slow", "unknown")
		if want := []string{"a=1", "slow=1"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		if refused := b.seen(Refused); len(refused) != 1 || refused[0].Client.Names[0] != "unknown" {
			t.Errorf("refusals told: %+v", refused)
		}
	}, "slow")
}

func TestFetchEndsWithTheRightStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for name, want := range map[string]codes.Code{"slow": codes.DeadlineExceeded, "unknown": codes.NotFound, "*": codes.NotFound, "": codes.NotFound} {
			if _, err := b.fetch(ctx, name); status.Code(err) != want {
				t.Errorf("a fetch of %q: %v, want %v", name, err, want)
			}
		}
		_, err := b.engine.Fetch(ctx, &discovery.DiscoveryRequest{TypeUrl: "not-served"}, "")
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a fetch of a type that is not served: %v", err)
		}
	}, "slow")
}

func TestEveryEventKindHasAName(t *testing.T) {
	for kind := Opened; kind <= Cleared; kind++ {
		if name := kind.String(); name == "unknown" {
			t.Errorf("kind %d has no name", kind)
		}
	}
	if EventKind(0).String() != "unknown" || (Cleared+1).String() != "unknown" {
		t.Error("a kind that there is not has a name")
	}
}
