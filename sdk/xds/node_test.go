package xds

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// withNode runs a story on an engine that is shown nodes.
func withNode(t *testing.T, node func(ctx context.Context, caller string, n *core.Node) (string, error), story func(t *testing.T, b *bench, s *catalog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newCatalog()
		b := newBench(t, Config[string]{Types: []Type[string]{{URL: thingURL, Source: s, Complete: true}}, Node: node}, s.memorySource)
		story(t, b, s)
		b.engine.Close(nil)
	})
}

func TestFirstNodeCanChangeCaller(t *testing.T) {
	asked := 0
	withNode(t, func(_ context.Context, caller string, n *core.Node) (string, error) {
		asked++
		return caller + "@" + n.GetId(), nil
	}, func(t *testing.T, b *bench, s *catalog) {
		s.forbid = func(caller, _ string) bool { return caller != "alice@node-1" }
		s.have("a")
		c, d := b.dial("alice"), b.dialDelta("alice")
		c.ask()
		c.gets("a=1")
		c.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: "other"}})
		c.ack()
		d.subscribe()
		d.gets("a=1")
		if asked != 2 {
			t.Errorf("asked %d times about two streams", asked)
		}
		if acks := b.seen(Acked); len(acks) != 1 || acks[0].Caller != "alice@node-1" {
			t.Errorf("acknowledgements: %+v, want one of alice@node-1", acks)
		}
		n := b.engine.End(func(caller string) bool { return caller == "alice@node-1" }, status.Error(codes.Aborted, "ended"))
		if n != 2 {
			t.Errorf("%d streams ended, want both", n)
		}
		c.ends(codes.Aborted)
		got, err := b.engine.Fetch(context.WithValue(t.Context(), callerKey{}, "alice"), &discovery.DiscoveryRequest{Node: &core.Node{Id: "node-1"}}, thingURL)
		if err != nil || !slices.Equal(contents(got), []string{"a=1"}) {
			t.Errorf("the fetch has %v, %v", got, err)
		}
	})
}

func TestNodeCanEndStreamBeforeAnyRequest(t *testing.T) {
	withNode(t, func(context.Context, string, *core.Node) (string, error) {
		return "", status.Error(codes.PermissionDenied, "not this cluster")
	}, func(t *testing.T, b *bench, s *catalog) {
		s.have("a")
		c, d := b.dial(""), b.dialDelta("")
		c.ask("a")
		c.ends(codes.PermissionDenied)
		d.subscribe()
		d.ends(codes.PermissionDenied)
		if _, err := b.fetch(t.Context(), "a"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the fetch ended with %v", err)
		}
		if s.peeks+s.asked > 0 {
			t.Errorf("the source was asked %d times", s.peeks+s.asked)
		}
	})
}

func TestNodeIsShownWhateverFirstRequestAsks(t *testing.T) {
	var shown []string
	withNode(t, func(_ context.Context, caller string, n *core.Node) (string, error) {
		shown = append(shown, n.GetId())
		return caller, nil
	}, func(t *testing.T, b *bench, s *catalog) {
		s.have("a")
		c := b.dialAs("", "")
		c.send(&discovery.DiscoveryRequest{TypeUrl: "not-served", Node: &core.Node{Id: "one"}})
		c.send(&discovery.DiscoveryRequest{TypeUrl: thingURL, Node: &core.Node{Id: "two"}})
		c.gets("a=1")
		b.dialAs("", "").send(&discovery.DiscoveryRequest{TypeUrl: thingURL}) // without one
		if want := []string{"one", ""}; !slices.Equal(shown, want) {
			t.Errorf("shown %q, want %q", shown, want)
		}
	})
}

func TestNodeIsCheckedAgainAfterConcurrentEnd(t *testing.T) {
	var b *bench
	asked := 0
	withNode(t, func(_ context.Context, caller string, _ *core.Node) (string, error) {
		if asked++; asked == 1 {
			b.engine.End(func(caller string) bool { return caller == "evil" }, status.Error(codes.PermissionDenied, "no longer"))
			return "evil", nil
		}
		return "", status.Error(codes.PermissionDenied, "no longer")
	}, func(_ *testing.T, made *bench, _ *catalog) {
		b = made
		c := b.dial("")
		c.ask()
		c.ends(codes.PermissionDenied)
	})
}
