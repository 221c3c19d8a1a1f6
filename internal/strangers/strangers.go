// Package strangers bounds what a server's clients may use before they are known: a
// [Listener] limits connections, those of [Unknown] clients lower, [Places] whatever else is counted
// by address, and [Bearer] reads a token.
package strangers

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// The limits of [Places.Take].
var (
	ErrFull       = errors.New("too many of all clients")
	ErrFullForOne = errors.New("too many of this client")
)

// Places are a limited number of places, in total and for one client, so that no client
// keeps all others out. It is safe for concurrent use.
type Places struct {
	most, ofOne int

	mu     sync.Mutex
	all    int
	by     map[string]int
	shared map[user]int // of those that share a client's
}

// user is one of those that share the places of a client.
type user struct{ client, one string }

// NewPlaces returns free places.
func NewPlaces(most, ofOne int) *Places {
	return &Places{most: most, ofOne: ofOne, by: map[string]int{}, shared: map[user]int{}}
}

// Take occupies a place, or returns [ErrFull] or [ErrFullForOne]. Call free once if there
// is one.
func (p *Places) Take(client string) (free func(), err error) { return p.TakeOf(client, "") }

// TakeOf is Take for one of several that share the places of a client, such as the machines of an
// account. It has at most as many as are left, so that one that takes all it can leaves half of them to
// the others. With an empty name the client has one user.
func (p *Places) TakeOf(client, one string) (free func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := user{client, one}
	switch left := p.ofOne - p.by[client]; {
	case left <= 0, one != "" && p.shared[own] >= left:
		return nil, ErrFullForOne
	case p.all >= p.most:
		return nil, ErrFull
	}
	p.all++
	p.by[client]++
	if one != "" {
		p.shared[own]++
	}
	return func() { p.free(own) }, nil
}

func (p *Places) free(own user) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.by[own.client]--; p.by[own.client] == 0 {
		delete(p.by, own.client)
	}
	if p.shared[own]--; p.shared[own] <= 0 {
		delete(p.shared, own)
	}
}

// HostOf returns what counts as one address: without the port, and for IPv6 the network
// of 64 bits, as a client there chooses the other 64 bits itself.
func HostOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// Listener is a listener with a limited number of connections. Its fields are set before
// it is used.
type Listener struct {
	net.Listener
	Places *Places
	// Unknown bounds those of clients that are not known yet.
	Unknown *Unknown
	// Full is called for each connection that is closed for err. It must not block.
	Full func(conn net.Conn, err error)
}

// Accept closes connections over the limit: one waiting in the kernel's queue would be
// answered long after its client has given up.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		taken, full := l.take(conn)
		if full == nil {
			return taken, nil
		}
		l.Full(conn, full)
		_ = conn.Close()
	}
}

func (l *Listener) take(conn net.Conn) (*counted, error) {
	host := HostOf(conn.RemoteAddr())
	free, err := l.Places.Take(host)
	if err != nil {
		return nil, err
	}
	c := &counted{Conn: conn, host: host, since: time.Now(), free: sync.OnceFunc(free), unknown: l.Unknown}
	out, err := c.unknown.enter(c)
	if err != nil {
		free()
		return nil, err
	}
	if out != nil {
		l.Full(out, ErrFull)
		_ = out.Close()
	}
	return c, nil
}

// counted is a connection that frees its places when closed.
type counted struct {
	net.Conn
	host    string
	since   time.Time
	free    func()
	unknown *Unknown
	late    *time.Timer // closes it; set while it has a place in unknown
}

// RemoteAddr returns the address by which [Known] finds the connection.
func (c *counted) RemoteAddr() net.Addr { return address{c.Conn.RemoteAddr(), c} }

// Close closes the connection.
func (c *counted) Close() error {
	defer c.free()
	c.unknown.remove(c)
	return c.Conn.Close()
}
