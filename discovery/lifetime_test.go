package discovery_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/authn"
)

func TestStreamLifetimeIsAnHourWithJitter(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		lasted := map[time.Duration]bool{}
		for range 5 {
			began := time.Now()
			c := open(t, conn)
			c.ask(thingURL, "a")
			c.gets("1")
			c.ends(codes.Unavailable)
			lasted[time.Since(began)] = true
			if d := time.Since(began); d < 54*time.Minute || d > 66*time.Minute {
				t.Errorf("it has lasted %s", d)
			}
		}
		if len(lasted) < 2 {
			t.Errorf("all streams have lasted %v; they would come again together", lasted)
		}
		if ended := p.server.Metrics().Ended["age"]; ended != 5 {
			t.Errorf("%d were counted", ended)
		}
	})
}

func TestStreamEndsWithItsCredential(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 20*time.Minute, web))
		defer conn.Close()
		began := time.Now()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		c.ends(codes.Unauthenticated)
		if d := time.Since(began).Round(time.Second); d > 20*time.Minute || d < 20*time.Minute-time.Second {
			t.Errorf("it has lasted %s", d)
		}
		again := open(t, conn)
		again.ends(codes.Unauthenticated) // on the connection of then, too
	})
}

func TestSilentStreamEnds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		began := time.Now()
		open(t, conn).ends(codes.DeadlineExceeded)
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("it has lasted %s", d)
		}
	})
}

// Timers stand still while a machine sleeps.
func TestClockJumpIsNoticed(t *testing.T) {
	var jump atomic.Int64
	inBubble(t, func(_ *place, c *discovery.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
	}, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 20*time.Minute, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		synctest.Wait()
		jump.Store(int64(time.Hour))
		began := time.Now()
		c.ends(codes.Unauthenticated)
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("it was noticed after %s", d)
		}
	})
}

func TestStreamEndsWhenItsRootsAreGone(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		other := certtest.Root(t)
		p.trust("other.example", other)
		clients := map[string]*client{}
		for name, certificate := range map[string]*certtest.Pair{
			"goes": p.root.Leaf(t, 100*time.Hour, web), "stays": other.Leaf(t, 100*time.Hour, "spiffe://other.example/ns/shop/sa/web"),
		} {
			conn := p.dial(certificate)
			defer conn.Close()
			clients[name] = open(t, conn)
			clients[name].ask(thingURL, "a")
			clients[name].gets("1")
		}
		if n := p.server.Reauthorize("example.org"); n != 0 {
			t.Errorf("%d were ended while the roots are the same", n)
		}
		p.trust("example.org", certtest.Root(t))
		if n := p.server.Reauthorize("other.example"); n != 0 {
			t.Errorf("%d of another trust domain were ended", n)
		}
		if n := p.server.Reauthorize("example.org"); n != 1 {
			t.Errorf("%d were ended, want 1", n)
		}
		clients["goes"].ends(codes.Unauthenticated)
		p.source.put("a", "2")
		clients["stays"].gets("2")
		clients["stays"].hang()
	})
}

func TestStreamsOfIdentityCanBeEnded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		gone := status.Error(codes.PermissionDenied, "no more")
		if n := p.server.End(func(id authn.Identity) bool { return id.Namespace == "bank" }, gone); n != 0 {
			t.Errorf("%d others were ended", n)
		}
		if n := p.server.End(func(id authn.Identity) bool { return id.Namespace == "shop" }, gone); n != 1 {
			t.Errorf("%d were ended", n)
		}
		c.ends(codes.PermissionDenied)
	})
}

func TestStoppedServerEndsStreamsGradually(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		ended := make(chan time.Time, 50)
		began := time.Now()
		for range 50 {
			c := open(t, conn)
			c.ask(thingURL, "a")
			c.gets("1")
			go func() { c.ends(codes.Unavailable); ended <- time.Now() }()
		}
		p.down()
		synctest.Wait()
		if !p.server.Status().Draining {
			t.Error("the status does not say that it drains")
		}
		first, second := 0, 0
		for range 50 {
			switch after := (<-ended).Sub(began); {
			case after > 10*time.Second:
				t.Errorf("one was ended after %s", after)
			case after < 5*time.Second:
				first++
			default:
				second++
			}
		}
		if first < 10 || second < 10 {
			t.Errorf("%d were ended in the first half of the time, %d in the second", first, second)
		}
		p.down() // a second time
	})
}

func TestStreamOpenedDuringDrainIsSentAway(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		certificate := p.root.Leaf(t, 100*time.Hour, web)
		conn := p.dial(certificate)
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		p.down()
		synctest.Wait()
		if _, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, "/late"); status.Code(err) != codes.Unavailable {
			t.Errorf("the late one ended with %v", err)
		}
		c.ends(codes.Unavailable)
	})
}

// slow verifies at once and answers when it is let.
type slow struct {
	authn.Authenticator
	asked, let chan struct{}
}

func (s slow) Authenticate(ctx context.Context, c authn.Credential) (authn.Identity, error) {
	id, err := s.Authenticator.Authenticate(ctx, c)
	select {
	case s.asked <- struct{}{}:
		<-s.let
	default: // asked for the second time
	}
	return id, err
}

func TestStreamOpenedDuringRootChangeUsesNewRoots(t *testing.T) {
	var held slow
	synctest.Test(t, func(t *testing.T) {
		held.asked, held.let = make(chan struct{}, 1), make(chan struct{})
		p := newPlace(t, func(_ *place, c *discovery.Config) {
			held.Authenticator = c.Authenticator
			c.Authenticator = held
		})
		defer p.close()
		conn := p.dial(p.root.Leaf(t, time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		synctest.Wait()
		p.trust("example.org", certtest.Root(t))
		p.server.Reauthorize("example.org")
		close(held.let)
		c.ends(codes.Unauthenticated)
		if asked := p.source.callers(); len(asked) > 0 {
			t.Errorf("the source was asked for %+v", asked)
		}
	})
}

// past identifies every caller, by a credential that has ended: within a leeway, for example.
type past struct{}

func (past) Authenticate(context.Context, authn.Credential) (authn.Identity, error) {
	id, err := authn.OfSPIFFEID(web)
	id.Expiry = time.Now().Add(-time.Second)
	return id, err
}

func TestExpiredCredentialOpensNoStream(t *testing.T) {
	inBubble(t, func(_ *place, c *discovery.Config) { c.Authenticator = past{} }, func(t *testing.T, p *place) {
		conn := p.dial(nil)
		defer conn.Close()
		began := time.Now()
		open(t, conn).ends(codes.Unauthenticated)
		if time.Since(began) > 0 {
			t.Errorf("it has lasted %s", time.Since(began))
		}
	})
}

// away identifies every caller, until it is away.
type away struct{ gone *atomic.Bool }

func (a away) Authenticate(context.Context, authn.Credential) (authn.Identity, error) {
	if a.gone.Load() {
		return authn.Identity{}, authn.ErrUnavailable
	}
	id, err := authn.OfSPIFFEID(web)
	id.Kind = authn.ByCertificate
	return id, err
}

func TestStreamStaysWhileCertificateCannotBeChecked(t *testing.T) {
	var gone atomic.Bool
	inBubble(t, func(_ *place, c *discovery.Config) { c.Authenticator = away{&gone} }, func(t *testing.T, p *place) {
		conn := p.dial(nil)
		defer conn.Close()
		c := open(t, conn)
		c.ask(thingURL, "a")
		c.gets("1")
		gone.Store(true)
		if n := p.server.Reauthorize("example.org"); n != 0 {
			t.Errorf("%d were ended", n)
		}
		p.source.put("a", "2")
		c.gets("2")
		c.hang()
	})
}
