package istioca_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/authn"
)

const method = security.Method

// ends waits for the status of an opened call.
func ends(stream grpc.ClientStream) codes.Code {
	return status.Code(stream.RecvMsg(&security.IstioCertificateResponse{}))
}

// slow does not answer about made-up tokens until ctx ends.
type slow struct{ authn.Authenticator }

func (s slow) Authenticate(ctx context.Context, c authn.Credential) (authn.Identity, error) {
	if strings.HasPrefix(c.Token.Reveal(), "made-up") {
		<-ctx.Done()
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "no answer about %s", c.Token.Reveal())
	}
	return s.Authenticator.Authenticate(ctx, c)
}

func withSlow(l istioca.Limits) func(*mesh, *parts) {
	return func(m *mesh, p *parts) {
		shop(m, p)
		p.door.Tokens = []authn.Named{{Name: "slow", Authenticator: slow{authn.Clusters(m.reviewer)}}}
		p.door.Limits = l
	}
}

func TestCallsBeingAuthenticatedAreLimited(t *testing.T) {
	inBubble(t, withSlow(istioca.Limits{Authentications: 3, AuthenticationsOfAddress: 2}), func(t *testing.T, m *mesh) {
		one, other := m.dial("192.0.2.1"), m.dial("192.0.2.2")
		defer one.Close()
		defer other.Close()
		var all []<-chan error
		begin := func(conn *grpc.ClientConn) {
			all = append(all, m.as(conn, "made-up-token-of-a-stranger", home).begin(t.Context(), wish{identity: web}))
			synctest.Wait()
		}
		began := time.Now()
		for _, conn := range []*grpc.ClientConn{one, one, one, other, other} {
			begin(conn)
		}
		for i, want := range []istioca.Result{2: istioca.OverOwnLimit, 4: istioca.OverLimit} {
			if want == "" {
				continue
			}
			if err := <-all[i]; status.Code(err) != codes.ResourceExhausted || time.Since(began) > 0 {
				t.Errorf("call %d after %s: %v, want %s", i, time.Since(began), err, want)
			}
		}
		for _, i := range []int{0, 1, 3} {
			if err := <-all[i]; status.Code(err) != codes.Unavailable {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if held := time.Since(began); held != 10*time.Second {
			t.Errorf("authentication took %s", held)
		}
		if strings.Contains(m.log.String(), "made-up-token") {
			t.Error("the token is in the log")
		}
		m.as(other, "web-token", home).must(wish{identity: web})
	})
}

func TestMessageOfAStrangerIsNotAwaited(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		began := time.Now()
		if code := ends(m.as(conn, "made-up", home).open(t.Context())); code != codes.Unauthenticated || time.Since(began) > 0 {
			t.Errorf("after %s: %s", time.Since(began), code)
		}
	})
}

func TestRequestMustArriveInTime(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		began := time.Now()
		if code := ends(m.as(conn, "web-token", home).open(t.Context())); code != codes.DeadlineExceeded {
			t.Errorf("got %s", code)
		}
		if waited := time.Since(began); waited != 10*time.Second {
			t.Errorf("waited for %s", waited)
		}
	})
}

func TestSecondMessageIsRefused(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		stream := m.as(conn, "web-token", home).open(t.Context())
		for range 2 {
			if err := stream.SendMsg(&security.IstioCertificateRequest{Csr: csrOf(newKey(), web)}); err != nil {
				t.Fatal(err)
			}
		}
		if code := ends(stream); code == codes.OK {
			t.Error("it was served")
		}
		if n := len(m.ca.Requests()); n > 0 {
			t.Error("the CA was asked")
		}
	})
}

func TestCallsOfOneCallerAreLimited(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.Limits.CallsOfCaller = 2
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(away)
		c := m.as(conn, "ztunnel-token", home)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			defer func(done <-chan error) { <-done }(c.begin(ctx, wish{identity: ztunnel}))
		}
		synctest.Wait()
		defer cancel()
		c.refused(wish{identity: ztunnel}, codes.ResourceExhausted)
		if m.last() != istioca.OverOwnLimit {
			t.Errorf("the event is %q", m.last())
		}
		m.ca.Fail(nil)
		m.as(conn, "web-token", home).must(wish{identity: web}) // of the same connection
	})
}

// One machine of an account leaves the others calls.
func TestCallsOfAnAccountAreSharedByItsMachines(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		battlefield(m, p)
		p.door.Limits.CallsOfCaller = 8
	}, func(t *testing.T, m *mesh) {
		m.enrols() // the engine has the roots then
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(away)
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan error
		held := func(n int) (held int) {
			token := m.ownToken(n)
			for range 8 {
				done := m.as(conn, token, "").begin(ctx, wish{identity: machine})
				synctest.Wait()
				select {
				case err := <-done:
					if status.Code(err) != codes.ResourceExhausted {
						t.Error(err)
					}
				default:
					all = append(all, done)
					held++
				}
			}
			return held
		}
		if one, two, three := held(1), held(2), held(3); one != 4 || two != 2 || three != 1 {
			t.Errorf("three machines have %d, %d and %d calls of 8", one, two, three)
		}
		cancel()
		for _, done := range all {
			<-done
		}
	})
}

func TestCallsOfAllAreLimited(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.Limits.Calls = 1
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(away)
		ctx, cancel := context.WithCancel(t.Context())
		defer func(done <-chan error) { <-done }(m.as(conn, "ztunnel-token", home).begin(ctx, wish{identity: ztunnel}))
		defer cancel()
		synctest.Wait()
		m.as(conn, "web-token", home).refused(wish{identity: web}, codes.ResourceExhausted)
		if m.last() != istioca.OverLimit {
			t.Errorf("the event is %q", m.last())
		}
	})
}

// What is too much for a connection waits in the client.
func TestCallsOfOneConnectionAreLimited(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.Limits.CallsOfConnection = 2
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		c.must(wish{identity: web}) // the client has the server's settings then
		m.ca.Fail(away)
		began := time.Now()
		var all []<-chan error
		for range 3 {
			all = append(all, c.begin(t.Context(), wish{identity: web}))
		}
		for _, done := range all {
			if err := <-done; status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		}
		if held := time.Since(began); held != 20*time.Second { // each is held for ten
			t.Errorf("three calls took %s", held)
		}
	})
}

func TestTenThousandIdentitiesOnOneConnectionCostTheCANothing(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "ztunnel-token", home)
		csr := csrOf(newKey(), web)
		for i := range 10_000 {
			w := impersonating(fmt.Sprintf("spiffe://cluster.local/ns/shop/sa/x%d", i))
			w.csr = csr
			c.refused(w, codes.PermissionDenied)
		}
		if n := len(m.ca.Requests()); n > 0 {
			t.Errorf("the CA was asked %d times", n)
		}
	})
}

func TestSizesAreThoseOfTheSettings(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.Limits.CSR, p.door.Limits.Metadata = 1000, 100
	}, func(_ *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		c.refused(wish{csr: csrOf(newKey(), web) + strings.Repeat("\n", 1000)}, codes.InvalidArgument)
		c.refused(fields("x", strings.Repeat("x", 100)), codes.InvalidArgument)
		c.must(fields("x", "unknown keys do no harm"))
	})
}

// isClosed reports whether the server closed a connection at once.
func isClosed(conn net.Conn) bool {
	began := time.Now()
	_ = conn.SetReadDeadline(began.Add(time.Second))
	_, err := conn.Read(make([]byte, 1))
	return err != nil && time.Since(began) == 0
}

func (m *mesh) raw(ip string) net.Conn {
	m.on.From(ip)
	conn := must(m.on.DialContext(m.t.Context()))
	synctest.Wait() // it is accepted, with that address
	return conn
}

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	inBubble(t, func(_ *mesh, p *parts) { p.door.Limits.ConnectionsOfAddress = 1 }, func(t *testing.T, m *mesh) {
		first, second, other := m.raw("2001:db8::1"), m.raw("2001:db8::ffff:1"), m.raw("2001:db8:0:1::1")
		defer first.Close()
		defer other.Close()
		if !isClosed(second) || isClosed(other) {
			t.Error("the second of one network is open, or the first of another is not")
		}
		if m.last() != istioca.OverOwnLimit {
			t.Errorf("the event is %q", m.last())
		}
	})
}

func TestHandshakeMustEndInTime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		conn := m.raw("192.0.2.1")
		defer conn.Close()
		began := time.Now()
		_, err := conn.Read(make([]byte, 1))
		if waited := time.Since(began); err == nil || waited != 10*time.Second {
			t.Errorf("after %s: %v", waited, err)
		}
	})
}

// opened connects from an address and leaves the connection idle.
func (m *mesh) opened(ip string, n int) (all []net.Conn) {
	for range n {
		conn := m.raw(ip)
		m.t.Cleanup(func() { _ = conn.Close() })
		all = append(all, conn)
	}
	return all
}

func TestIdleConnectionsOfStrangersAreBounded(t *testing.T) {
	limits := istioca.Limits{Authentications: 6, AuthenticationsOfAddress: 4}
	closed := func(all []net.Conn) (n int) {
		for _, conn := range all {
			if isClosed(conn) {
				n++
			}
		}
		return n
	}
	inBubble(t, func(_ *mesh, p *parts) { p.door.Limits = limits }, func(t *testing.T, m *mesh) {
		one, two := m.opened("192.0.2.1", 5), m.opened("192.0.2.2", 4)
		if n := closed(one); n != 2 {
			t.Errorf("%d of the first address's 5 connections were closed, want one over its limit and one that gave way", n)
		}
		if n := closed(two); n != 1 {
			t.Errorf("%d of the second address's 4 connections were closed", n)
		}
	})
	inBubble(t, func(_ *mesh, p *parts) { p.door.Limits = limits }, func(t *testing.T, m *mesh) {
		strangers := m.opened("192.0.2.1", 4)
		time.Sleep(2 * time.Second)
		again := m.opened("192.0.2.1", 1)
		if n := closed(strangers); n != 1 || !isClosed(strangers[0]) || isClosed(again[0]) {
			t.Errorf("%d were closed: the oldest has to give way to one of its own address", n)
		}
	})
}

func TestConnectionMustCarryAnAuthenticatedCallInTime(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn, other := m.dial("192.0.2.1"), m.dial("192.0.2.2")
		defer conn.Close()
		defer other.Close()
		m.as(other, "web-token", home).must(wish{identity: web})
		began := time.Now()
		for time.Since(began) < 19*time.Second { // calls that fail do not prolong it
			m.as(conn, "made-up", home).refused(wish{identity: web}, codes.Unauthenticated)
			time.Sleep(time.Second)
		}
		if state := conn.GetState(); state != connectivity.Ready {
			t.Fatalf("after %s the connection is %s", time.Since(began), state)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if state := conn.GetState(); state != connectivity.Idle {
			t.Errorf("after %s the connection is %s", time.Since(began), state)
		}
		if state := other.GetState(); state != connectivity.Ready {
			t.Errorf("the connection of a known caller is %s", state)
		}
	})
}

func TestManyCallersBehindOneGatewayAreServed(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		var all []<-chan error
		for range 500 {
			conn := m.dial("192.0.2.1")
			defer conn.Close()
			all = append(all, m.as(conn, "web-token", home).begin(t.Context(), wish{identity: web}))
		}
		for _, done := range all {
			if err := <-done; status.Code(err) == codes.Unavailable {
				t.Error(err)
			}
		}
		idle := m.opened("192.0.2.1", 100) // those that are known take none of the places
		if isClosed(idle[0]) || isClosed(idle[99]) {
			t.Error("a connection was closed")
		}
	})
}
