package process

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/internal/http2frames"
)

// A provider sends HTTP/2 frames because of a request, or a few by itself. Others cost the host a
// core: an answer to each PING, and a look at each.
const (
	framesAtFirst   = 1000
	framesPerSecond = 200
	// framesPerRequest are enough for a reply of the largest size in frames of the least.
	framesPerRequest = 400
	// bytesPerFrame are what the host sends on an open stream for each frame more: a call on the stream
	// of calls has some hundred, and its answer a few frames. By bytes, as the provider's flow control
	// can split what the host sends into frames of one byte.
	bytesPerFrame = 32
	mostFrames    = 256 * framesPerRequest
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
	return newCounted(conn, c.flooded), info, nil
}

// Clone implements [credentials.TransportCredentials].
func (c counting) Clone() credentials.TransportCredentials {
	return counting{c.TransportCredentials.Clone(), c.flooded}
}

// counted counts frames in both directions: a request of the host allows the peer more frames.
type counted struct {
	net.Conn
	flooded   func()
	in, out   http2frames.Scanner
	allowance allowance
}

func newCounted(conn net.Conn, flooded func()) *counted {
	return &counted{Conn: conn, flooded: flooded, out: http2frames.OfClient(), allowance: allowance{left: framesAtFirst, last: time.Now()}}
}

// Read implements [net.Conn].
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	got := 0
	c.in.Scan(b[:n], func(http2frames.Frame) { got++ }, nil)
	if !c.allowance.spend(got, time.Now()) {
		c.flooded()
		return 0, errFrameFlood
	}
	return n, err
}

// Write implements [net.Conn].
func (c *counted) Write(b []byte) (int, error) {
	requests, content := 0, 0
	c.out.Scan(b, func(f http2frames.Frame) {
		switch f.Kind {
		case http2frames.Headers:
			requests++
		case http2frames.Data:
			content += f.Length
		}
	}, nil)
	c.allowance.add(framesPerRequest*float64(requests) + float64(content)/bytesPerFrame)
	return c.Conn.Write(b)
}

// allowance is how many frames may still come.
type allowance struct {
	mu   sync.Mutex
	left float64
	last time.Time
}

func (a *allowance) add(frames float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = min(a.left+frames, mostFrames)
}

func (a *allowance) spend(frames int, now time.Time) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = max(a.left, min(a.left+framesPerSecond*now.Sub(a.last).Seconds(), framesAtFirst)) - float64(frames)
	a.last = now
	return a.left >= 0
}
