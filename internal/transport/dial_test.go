package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

var errDead = errors.New("dead")

func TestFirstAddressThatAnswersIsTaken(t *testing.T) {
	const never = time.Hour
	for name, test := range map[string]struct {
		after []time.Duration // until each answers; negative: fails after that
		want  int             // -1: an error
		took  time.Duration
	}{
		"the first":                  {[]time.Duration{100 * time.Millisecond, 0}, 0, 100 * time.Millisecond},
		"the second is faster":       {[]time.Duration{time.Second, 0}, 1, dialPause},
		"two hang":                   {[]time.Duration{never, never, 0}, 2, 2 * dialPause},
		"one is refused":             {[]time.Duration{-time.Millisecond, 0}, 1, time.Millisecond},
		"all are refused":            {[]time.Duration{-time.Millisecond, -time.Millisecond}, -1, 2 * time.Millisecond},
		"all hang":                   {[]time.Duration{never, never}, -1, dialTimeout},
		"a late one is closed":       {[]time.Duration{300 * time.Millisecond, time.Second}, 0, 300 * time.Millisecond},
		"the last is slow and taken": {[]time.Duration{-time.Millisecond, 2 * time.Second}, 1, 2*time.Second + time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), dialTimeout)
			defer cancel()
			var ours, peers []net.Conn
			for range test.after {
				our, peer := net.Pipe()
				ours, peers = append(ours, our), append(peers, peer)
			}
			begin := time.Now()
			conn, err := first(ctx, len(test.after), func(ctx context.Context, i int) (net.Conn, error) {
				wait := test.after[i]
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(max(wait, -wait)):
				}
				if wait < 0 {
					return nil, errDead
				}
				return ours[i], nil
			})
			if took := time.Since(begin); took != test.took || (err == nil) != (test.want >= 0) || err == nil && conn != ours[test.want] {
				t.Errorf("%s: %v, %v after %s", name, conn, err, took)
			}
			for _, peer := range append(ours, peers...) {
				_ = peer.Close()
			}
		})
	}
}

// A dead name server costs 5 s before the next one is asked, which leaves the whole time to connect.
func TestSlowLookupLeavesTimeToConnect(t *testing.T) {
	listener := listen(t)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		slow := dialer{func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			select {
			case <-time.After(6 * time.Second):
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		conn, err := slow.DialContext(t.Context(), "tcp", net.JoinHostPort("ca.invalid", port))
		if err != nil {
			t.Fatalf("a name that took 6 s to resolve: %v", err)
		}
		_ = conn.Close()
	})
}

func TestAddressWithoutHostIsThisMachine(t *testing.T) {
	_, port, err := net.SplitHostPort(listen(t).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), "tcp", ":"+port)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
