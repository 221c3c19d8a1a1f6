package transport

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	// lookupTimeout is for a name. A resolver waits 5 s for a dead name server before it asks the next
	// one, for each suffix of its search list.
	lookupTimeout = 20 * time.Second
	// dialTimeout is for all addresses of a name. It is shorter than the deadline of any call.
	dialTimeout = 5 * time.Second
	// dialPause is how long an address may take before the next one is tried, too (RFC 8305,
	// section 5).
	dialPause = 250 * time.Millisecond
)

// Dial connects to the first address of a name that answers.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer{net.DefaultResolver.LookupNetIP}.DialContext(ctx, network, address)
}

// dialer connects to the first address of a name that answers. [net.Dialer] alone tries one after
// the other: a dead address would cost each connection seconds.
type dialer struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if _, notIP := netip.ParseAddr(host); err != nil || host == "" || notIP == nil || !strings.HasPrefix(network, "tcp") {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	}
	found, err := d.resolve(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return first(ctx, len(found), func(ctx context.Context, i int) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(found[i].Unmap().String(), port))
	})
}

func (d dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return d.lookup(ctx, "ip", host)
}

type dialed struct {
	conn net.Conn
	err  error
}

// first starts the n dials in order, each when the one before has failed or taken dialPause, and
// returns the first connection. Without one, the error is that of the first failure.
func first(ctx context.Context, n int, dial func(context.Context, int) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan dialed, n)
	started, ended := 0, 0
	defer func() { // the others end with the context
		cancel()
		for ; ended < started; ended++ {
			if late := <-results; late.conn != nil {
				_ = late.conn.Close()
			}
		}
	}()
	start := func() {
		i := started
		started++
		go func() {
			conn, err := dial(ctx, i)
			results <- dialed{conn, err}
		}()
	}
	start()
	pause := time.NewTicker(dialPause)
	defer pause.Stop()
	var failed error
	for {
		select {
		case <-pause.C:
		case r := <-results:
			ended++
			if r.err == nil {
				return r.conn, nil
			}
			failed = cmp.Or(failed, r.err)
			if ended == n {
				return nil, failed
			}
		}
		if started < n {
			start()
		}
	}
}
