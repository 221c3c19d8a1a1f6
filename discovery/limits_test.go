package discovery_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func limited(l discovery.Limits) func(*place, *discovery.Config) {
	return func(_ *place, c *discovery.Config) { c.Limits = l }
}

func TestStreamsPerIdentityAreLimited(t *testing.T) {
	inBubble(t, limited(discovery.Limits{StreamsOfIdentity: 2, Streams: 3}), func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		other := p.dial(p.root.Leaf(t, 100*time.Hour, "spiffe://example.org/ns/shop/sa/other"))
		defer other.Close()
		var held []*client
		hold := func(conn *grpc.ClientConn) {
			c := open(t, conn)
			c.ask(thingURL, "a")
			c.gets("1")
			held = append(held, c)
		}
		hold(conn)
		hold(conn)
		open(t, conn).ends(codes.ResourceExhausted)
		hold(other)
		open(t, other).ends(codes.ResourceExhausted) // they are three now
		held[0].hang()
		synctest.Wait()
		hold(conn)
		for _, c := range held {
			c.hang()
		}
		if n := p.server.Metrics().Refusals["limit"]; n != 2 {
			t.Errorf("%d were counted", n)
		}
	})
}

func TestIdentityLimitAppliesPerCluster(t *testing.T) {
	inBubble(t, func(_ *place, c *discovery.Config) {
		c.Limits.StreamsOfIdentity = 1
		c.Clusters = map[string][]string{"example.org": {"local", "far"}}
	}, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		claims := func(metadata, node string) *client {
			var pairs []string
			if metadata != "" {
				pairs = []string{"clusterid", metadata}
			}
			c := open(t, conn, pairs...)
			c.node = nodeWith(map[string]any{"CLUSTER_ID": node})
			c.ask(thingURL, "a")
			return c
		}
		far := claims("far", "")
		far.gets("1")
		claims("far", "").ends(codes.ResourceExhausted)
		claims("", "far").ends(codes.ResourceExhausted) // it counts as local until its node claims another
		local := claims("", "")
		local.gets("1")
		claims("local", "").ends(codes.ResourceExhausted)
		far.hang()
		local.hang()
		synctest.Wait()
		for range 2 { // what was moved from one cluster to another is freed in both
			moved := claims("", "far")
			moved.gets("1")
			other := claims("local", "")
			other.gets("1")
			moved.hang()
			other.hang()
			synctest.Wait()
		}
	})
}

func TestStreamsPerConnectionAreLimited(t *testing.T) {
	inBubble(t, limited(discovery.Limits{StreamsOfConnection: 1}), func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a second stream: %v", err)
		}
		c.hang()
	})
}

func TestConnectionLimitClosesExcessAndReusesSlots(t *testing.T) {
	inBubble(t, limited(discovery.Limits{Connections: 2}), func(t *testing.T, p *place) {
		first, second := p.raw(t), p.raw(t)
		defer second.Close()
		third := p.raw(t)
		defer third.Close()
		began := time.Now()
		if _, err := third.Read(make([]byte, 1)); err == nil || time.Since(began) > 0 {
			t.Errorf("a third connection is kept for %s", time.Since(began))
		}
		first.Close()
		synctest.Wait()
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		c.hang()
	})
}

// raw is a connection without traffic.
func (p *place) raw(t *testing.T) net.Conn {
	t.Helper()
	conn, err := p.tls.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return conn
}

func TestSilentConnectionIsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.raw(t)
		defer conn.Close()
		began := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestClientPingingTooOftenIsSentAway(t *testing.T) {
	for every, want := range map[time.Duration]codes.Code{time.Minute: codes.OK, 10 * time.Second: codes.Unavailable} {
		inBubble(t, func(_ *place, c *discovery.Config) { c.Times.PingAtMost = 30 * time.Second }, func(t *testing.T, p *place) {
			conn := p.dial(p.root.Leaf(t, 100*time.Hour, web), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: every}))
			defer conn.Close()
			c := open(t, conn)
			c.ask(thingURL, "a")
			c.gets("1")
			if want != codes.OK {
				began := time.Now()
				c.ends(want)
				if time.Since(began) > 5*time.Minute {
					t.Errorf("it was sent away after %s", time.Since(began))
				}
				return
			}
			time.Sleep(10 * time.Minute) // the bubble's
			p.source.put("a", "2")
			c.gets("2")
			c.hang()
		})
	}
}

func TestOversizedRequestsEndStream(t *testing.T) {
	inBubble(t, limited(discovery.Limits{Message: 1000, Names: xds.Limits{MaxNames: 3}}), func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		many := open(t, conn)
		many.ask(thingURL, "a", "b", "c", "d")
		many.ends(codes.ResourceExhausted)
		large := open(t, conn)
		large.ask(thingURL, string(make([]byte, 1000)))
		large.ends(codes.ResourceExhausted)
	})
}
