package provider

import (
	"errors"
	"net"
	"sync"
)

// errChannelEnded means that the one connection is closed. There is no other.
var errChannelEnded = errors.New("the channel to the host has ended")

// oneConn is a listener with one connection, which exists already.
type oneConn struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newOneConn(conn net.Conn) *oneConn {
	l := &oneConn{conns: make(chan net.Conn, 1), over: make(chan struct{}), addr: conn.LocalAddr()}
	l.conns <- &endingConn{Conn: conn, ended: l.end}
	return l
}

func (l *oneConn) end() { l.once.Do(func() { close(l.over) }) }

// Accept returns the connection; the next Accept waits for its end.
func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.over:
		return nil, errChannelEnded
	}
}

// Close ends Accept; the connection is the server's to close.
func (l *oneConn) Close() error {
	l.end()
	return nil
}

// Addr returns the local address of the connection.
func (l *oneConn) Addr() net.Addr { return l.addr }

// endingConn notifies its listener when it is closed.
type endingConn struct {
	net.Conn
	ended func()
}

// Close closes the connection.
func (c *endingConn) Close() error {
	defer c.ended()
	return c.Conn.Close()
}
