// Package addressed has connections in memory come from addresses that a test chooses.
package addressed

import (
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// Listener is one in memory. The address of its connections is that of [Listener.From], if set.
type Listener struct {
	*bufconn.Listener

	mu   sync.Mutex
	from net.Addr
}

// Listen returns a listener whose connections have buffers of a size.
func Listen(size int) *Listener { return &Listener{Listener: bufconn.Listen(size)} }

// From sets the IP address of the connections that are opened from now on.
func (l *Listener) From(ip string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from = &net.TCPAddr{IP: net.ParseIP(ip), Port: 40000}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.from == nil {
		return conn, err
	}
	return at{conn, l.from}, nil
}

type at struct {
	net.Conn
	from net.Addr
}

func (a at) RemoteAddr() net.Addr { return a.from }
