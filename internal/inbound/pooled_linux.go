package inbound

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// pooledConn reads from a socket as gRPC does from one that is not followed: a connection that
// waits has no buffer. gRPC finds the method by an assertion.
type pooledConn struct {
	*conn
	raw  syscall.RawConn
	read func(fd uintptr) (done bool)

	// Of the read in progress; fields, as a closure for each read would be garbage.
	size   int
	pool   mem.BufferPool
	buffer *[]byte
	n      int
	err    error
}

// pooled returns the connection as it is unless it is a socket without TLS.
func pooled(c *conn) net.Conn {
	var socket syscall.Conn
	switch plain := c.Conn.(type) {
	case *net.UnixConn:
		socket = plain
	case *net.TCPConn:
		socket = plain
	default:
		return c
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return c
	}
	p := &pooledConn{conn: c, raw: raw}
	p.read = p.try
	return p
}

// try reads once, and reports false if there is nothing to read yet.
func (p *pooledConn) try(fd uintptr) bool {
	p.buffer = p.pool.Get(p.size)
	if p.n, p.err = syscall.Read(int(fd), *p.buffer); p.err != nil { // #nosec G115 -- a descriptor
		p.drop()
	}
	return !errors.Is(p.err, syscall.EAGAIN)
}

func (p *pooledConn) drop() {
	if p.buffer != nil {
		p.pool.Put(p.buffer)
		p.buffer = nil
	}
}

// ReadOnReady waits for bytes before it takes a buffer for them. gRPC calls it in one goroutine.
func (p *pooledConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	p.size, p.pool, p.buffer, p.n = size, pool, nil, 0
	defer func() { p.pool, p.buffer = nil, nil }()
	err := p.raw.Read(p.read)
	switch {
	case err != nil:
	case p.err != nil:
		err = p.err
	case p.n == 0:
		err = io.EOF
	case p.took((*p.buffer)[:p.n]):
		err = errOver
	}
	if err != nil {
		p.drop()
		return nil, 0, err
	}
	return p.buffer, p.n, nil
}
