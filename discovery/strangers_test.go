package discovery_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// hanging answers for made-up tokens only when ctx ends; all others are of web.
type hanging struct{}

func (hanging) Authenticate(ctx context.Context, c authn.Credential) (authn.Identity, error) {
	if c.Token == "made-up" {
		<-ctx.Done()
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "nobody answers")
	}
	id, err := authn.OfSPIFFEID(web)
	id.Kind = authn.ByJWT
	return id, err
}

func withHanging(l discovery.Limits) func(*place, *discovery.Config) {
	return func(_ *place, c *discovery.Config) { c.Authenticator, c.Limits = hanging{}, l }
}

// strangers opens streams with made-up tokens from an address.
func (p *place) strangers(ip string, n int) (*grpc.ClientConn, []*client) {
	p.tls.From(ip)
	conn := p.dial(nil)
	var all []*client
	for range n {
		all = append(all, open(p.t, conn, "authorization", "Bearer made-up"))
		synctest.Wait()
	}
	return conn, all
}

func TestStreamsBeingAuthenticatedAreLimited(t *testing.T) {
	inBubble(t, withHanging(discovery.Limits{Authentications: 3, AuthenticationsOfAddress: 2}), func(t *testing.T, p *place) {
		began := time.Now()
		conn, first := p.strangers("192.0.2.1", 3)
		defer conn.Close()
		first[2].ends(codes.ResourceExhausted) // its address has two
		other, second := p.strangers("192.0.2.2", 2)
		defer other.Close()
		second[1].ends(codes.ResourceExhausted) // there are three in total
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the refused ones waited %s", waited)
		}
		if got := p.server.Metrics().Refusals; got["address-limit"] != 1 || got["limit"] != 1 {
			t.Errorf("counted are %v", got)
		}
		first[0].hang()
		synctest.Wait()
		known := open(t, other, "authorization", "Bearer honest")
		known.ask(thingURL, "a")
		known.gets("1")
		known.hang()
		for _, c := range []*client{first[1], second[0]} {
			c.ends(codes.Unavailable)
		}
	})
}

func TestKnownStreamsAreNotCountedAsBeingAuthenticated(t *testing.T) {
	inBubble(t, withHanging(discovery.Limits{Authentications: 1, AuthenticationsOfAddress: 1}), func(t *testing.T, p *place) {
		conn := p.dial(nil)
		defer conn.Close()
		for range 5 {
			c := open(t, conn, "authorization", "Bearer honest")
			c.ask(thingURL, "a")
			c.gets("1")
			defer c.hang()
		}
	})
}

// isClosed reports whether the server closed a connection at once.
func isClosed(conn net.Conn) bool {
	began := time.Now()
	_ = conn.SetReadDeadline(began.Add(time.Second))
	_, err := conn.Read(make([]byte, 1))
	return err != nil && time.Since(began) == 0
}

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	for name, test := range map[string]struct {
		first, second string
		one           bool
	}{
		"one address":          {"192.0.2.1", "192.0.2.1", true},
		"two addresses":        {"192.0.2.1", "192.0.2.2", false},
		"one IPv6 network":     {"2001:db8::1", "2001:db8::ffff:1", true},
		"two IPv6 networks":    {"2001:db8::1", "2001:db8:0:1::1", false},
		"IPv4 written as IPv6": {"192.0.2.1", "::ffff:192.0.2.1", true},
	} {
		inBubble(t, limited(discovery.Limits{ConnectionsOfAddress: 1}), func(t *testing.T, p *place) {
			p.tls.From(test.first)
			first := p.raw(t)
			p.tls.From(test.second)
			second := p.raw(t)
			if isClosed(second) != test.one {
				t.Errorf("%s: the second is closed: %v", name, !test.one)
			}
			want := uint64(0)
			if test.one {
				want = 1
			}
			if n := p.server.Metrics().Refusals["address-limit"]; n != want {
				t.Errorf("%s: %d were counted", name, n)
			}
			first.Close()
			second.Close()
			synctest.Wait()
			third := p.raw(t)
			defer third.Close()
			if isClosed(third) {
				t.Errorf("%s: the freed place is not used", name)
			}
		})
	}
}

func TestIdleConnectionsOfStrangersAreBounded(t *testing.T) {
	inBubble(t, withHanging(discovery.Limits{Authentications: 2}), func(t *testing.T, p *place) {
		p.tls.From("192.0.2.1")
		conn := p.dial(nil)
		defer conn.Close()
		known := open(t, conn, "authorization", "Bearer honest")
		defer known.hang()
		known.ask(thingURL, "a")
		known.gets("1")
		var idle []net.Conn
		for range 3 {
			c := p.raw(t)
			defer c.Close()
			idle = append(idle, c)
		}
		if isClosed(idle[0]) || isClosed(idle[1]) || !isClosed(idle[2]) {
			t.Error("want two idle connections of strangers beside the known one")
		}
		time.Sleep(20 * time.Second)
		if !isClosed(idle[0]) || conn.GetState() != connectivity.Ready {
			t.Errorf("after 20 s an idle connection is open, or the known one is %s", conn.GetState())
		}
	})
}

func TestTokensUpTo16KiBAreAccepted(t *testing.T) {
	inBubble(t, withHanging(discovery.Limits{}), func(t *testing.T, p *place) {
		conn := p.dial(nil)
		defer conn.Close()
		for size, want := range map[int]codes.Code{16 << 10: codes.OK, 16<<10 + 1: codes.Unauthenticated} {
			c := open(t, conn, "authorization", "Bearer "+strings.Repeat("x", size))
			c.ask(thingURL, "a")
			if want == codes.OK {
				c.gets("1")
				c.hang()
				continue
			}
			c.ends(want)
		}
		// gRPC does not even read one of 60 KiB, and asks its clients not to send it.
		large := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+strings.Repeat("x", 60<<10))
		if _, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(large); status.Code(err) != codes.Internal {
			t.Errorf("60 KiB: %v", err)
		}
	})
}
