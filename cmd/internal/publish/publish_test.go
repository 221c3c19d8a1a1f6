package publish

import (
	"net"
	"testing"
)

// connections is a listener that accepts those that a test makes.
type connections struct {
	net.Listener
	next net.Conn
}

func (c *connections) Accept() (net.Conn, error) {
	next := c.next
	c.next = nil
	if next == nil {
		return nil, net.ErrClosed
	}
	return next, nil
}

// from is a connection from an address.
type from struct {
	net.Conn
	net.TCPAddr
}

func (f from) RemoteAddr() net.Addr { return &f.TCPAddr }

// A client with several addresses could hold all places of readers.
func TestReadersOfAFewAddressesKeepNoOtherOut(t *testing.T) {
	c := &connections{}
	listener := bounded(c)
	accepts := func(address byte) bool {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		c.next = from{server, net.TCPAddr{IP: net.IPv4(192, 0, 2, address), Port: 1}}
		conn, err := listener.Accept()
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = conn.Close() })
		return true
	}
	for n := range mostReaders {
		if !accepts(byte(n / mostReadersOfOne)) {
			t.Fatalf("connection %d is refused", n)
		}
	}
	if accepts(0) || !accepts(100) {
		t.Error("a new address has no place, or one of the others has more than its own")
	}
}
