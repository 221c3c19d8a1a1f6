package inbound

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/http2frames"
)

var errOver = errors.New("closed: unfinished requests of all clients take more memory than they may, and the oldest was here")

// conn follows the frames of a connection.
type conn struct {
	net.Conn
	sum *Sum
	log *slog.Logger

	mu       sync.Mutex
	in, out  http2frames.Scanner
	streams  map[uint32]*stream // that the client has not ended
	latest   uint32             // stream of the client
	padding  padding
	now      usage
	over     bool
	reported int64 // bytes, to the sum
}

func newConn(sum *Sum, raw net.Conn, log *slog.Logger) *conn {
	return &conn{Conn: raw, sum: sum, log: log, in: http2frames.OfClient(), streams: map[uint32]*stream{}}
}

// Read implements [net.Conn]. What it returns is counted.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.took(b[:n]) {
		return 0, errOver
	}
	return n, err
}

// took counts bytes of the client, and reports whether the connection is over.
func (c *conn) took(b []byte) (over bool) {
	c.mu.Lock()
	c.in.Scan(b, c.begin, c.payload)
	c.mu.Unlock()
	return c.report()
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.out.Scan(b, c.sent, nil)
	c.mu.Unlock()
	c.report()
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.finish()
	return c.Conn.Close()
}

// end closes the connection of a peer that holds too much. TLS sends an alert first, which may take
// seconds: it must not delay the caller, another connection.
func (c *conn) end() {
	c.finish()
	go func() { _ = c.Conn.Close() }()
	if suppressed, ok := c.sum.repeats.Allow("", time.Now()); ok {
		c.log.Warn("connection closed: requests that clients do not finish take too much memory, and the oldest is here", "peer", c.RemoteAddr().String(), "limit", c.sum.most, "suppressed", suppressed)
	}
}

func (c *conn) finish() {
	c.mu.Lock()
	c.over, c.now, c.streams = true, usage{}, map[uint32]*stream{}
	c.mu.Unlock()
	c.report()
}

// report brings the sum up to date, and reports whether this connection is over.
func (c *conn) report() (over bool) {
	c.mu.Lock()
	changed := c.now.bytes != c.reported
	c.mu.Unlock()
	if changed {
		c.sum.update(c)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// current returns what the connection holds, for the sum.
func (c *conn) current() usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = c.now.bytes
	return c.now
}

// sent looks at a frame of the server.
func (c *conn) sent(f http2frames.Frame) {
	switch {
	case f.Kind == http2frames.Data:
		c.now.answered = true
	case f.Kind == http2frames.Reset, f.Ends():
		c.forget(f.Stream)
	}
}

// begin looks at a frame of the client.
func (c *conn) begin(f http2frames.Frame) {
	switch {
	case f.Kind == http2frames.Reset:
		c.forget(f.Stream)
	case f.Kind == http2frames.Headers && f.Stream > c.latest && !c.over:
		c.latest = f.Stream
		if !f.Ends() {
			c.streams[f.Stream] = &stream{}
		}
	}
	c.padding = padding{}
}

func (c *conn) payload(f http2frames.Frame, piece []byte, end bool) {
	if s := c.streams[f.Stream]; s != nil && f.Kind == http2frames.Data {
		before := s.held
		s.take(c.padding.strip(f, piece))
		c.add(s.held - before)
	}
	if end && f.Ends() {
		c.forget(f.Stream)
	}
}

func (c *conn) forget(id uint32) {
	if s := c.streams[id]; s != nil {
		delete(c.streams, id)
		c.add(-s.held)
	}
}

// add counts bytes. The connection has held some since the count was zero.
func (c *conn) add(bytes int64) {
	if c.now.bytes == 0 && bytes > 0 {
		c.now.since = time.Now()
	}
	c.now.bytes += bytes
}
