package process

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// A provider sends HTTP/2 frames because of a request, or a few by itself. Others cost the host a
// core: an answer to each PING, and a look at each.
const (
	framesAtFirst   = 1000
	framesPerSecond = 200
	// framesPerRequest are enough for a reply of the largest size in frames of the least.
	framesPerRequest = 400
	mostFrames       = 256 * framesPerRequest

	frameHeader  = 9
	frameHEADERS = 1
)

var errFrameFlood = errors.New("flooded its channel with HTTP/2 frames")

// counting are credentials whose connections count the frames of the peer.
type counting struct {
	credentials.TransportCredentials
	flooded func()
}

// ClientHandshake implements [credentials.TransportCredentials].
func (c counting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &counted{Conn: conn, allowance: allowance{left: framesAtFirst, last: time.Now()}, flooded: c.flooded}, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (c counting) Clone() credentials.TransportCredentials {
	return counting{c.TransportCredentials.Clone(), c.flooded}
}

// counted counts frames in both directions: a request of ours allows more of the peer's.
type counted struct {
	net.Conn
	flooded   func()
	in, out   frames
	allowance allowance
}

// Read implements [net.Conn].
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if got := c.in.scan(b[:n], func(byte) bool { return true }); !c.allowance.spend(got, time.Now()) {
		c.flooded()
		return 0, errFrameFlood
	}
	return n, err
}

// Write implements [net.Conn].
func (c *counted) Write(b []byte) (int, error) {
	const preface = 24
	unscanned := b
	if c.out.before < preface {
		skip := min(len(b), preface-c.out.before)
		c.out.before += skip
		unscanned = b[skip:]
	}
	c.allowance.add(framesPerRequest * c.out.scan(unscanned, func(kind byte) bool { return kind == frameHEADERS }))
	return c.Conn.Write(b)
}

// allowance is how many frames may still come.
type allowance struct {
	mu   sync.Mutex
	left float64
	last time.Time
}

func (a *allowance) add(frames int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = min(a.left+float64(frames), mostFrames)
}

func (a *allowance) spend(frames int, now time.Time) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = max(a.left, min(a.left+framesPerSecond*now.Sub(a.last).Seconds(), framesAtFirst)) - float64(frames)
	a.last = now
	return a.left >= 0
}

// frames finds the frames in one direction of a connection, however its bytes come in pieces.
type frames struct {
	before int // bytes of the client's preface so far
	header [frameHeader]byte
	have   int // bytes of the header
	skip   int // bytes of the payload still to come
}

// scan returns how many of the frames that begin in these bytes count.
func (f *frames) scan(b []byte, counts func(kind byte) bool) (n int) {
	for len(b) > 0 {
		if f.skip > 0 {
			some := min(f.skip, len(b))
			f.skip, b = f.skip-some, b[some:]
			continue
		}
		some := copy(f.header[f.have:], b)
		f.have, b = f.have+some, b[some:]
		if f.have < frameHeader {
			return n
		}
		f.have, f.skip = 0, int(binary.BigEndian.Uint32(f.header[:4])>>8)
		if counts(f.header[3]) {
			n++
		}
	}
	return n
}
