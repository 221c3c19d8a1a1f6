package debugger

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/host/selfsigned"
	"github.com/countersign-dev/countersign/plugin-host/internal/attach"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
)

// The sockets in the private folder where a provider of another language gets what a host
// passes as descriptors. The command that starts it connects, so that the provider inherits
// its environment.
const (
	LifelineSocket = "lifeline"
	ChannelSocket  = "channel"
)

// channel is a connection that only this process and the provider have an end of.
type channel struct {
	net.Conn
	first []byte // what serving has read
}

// Read implements [net.Conn].
func (c *channel) Read(b []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.first)
	c.first = c.first[n:]
	return n, nil
}

// plainOverChannel are credentials that leave a channel without TLS, as a host does.
type plainOverChannel struct {
	credentials.TransportCredentials
}

// ClientHandshake implements [credentials.TransportCredentials].
func (c plainOverChannel) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, ok := conn.(*channel); ok {
		return insecure.NewCredentials().ClientHandshake(ctx, authority, conn)
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (c plainOverChannel) Clone() credentials.TransportCredentials {
	return plainOverChannel{c.TransportCredentials.Clone()}
}

// starts accepts these connections: start-up data goes to each lifeline, which ends when the
// Debugger is gone; a channel waits until the gRPC connection wants it.
type starts struct {
	host      *selfsigned.Pair
	lifelines net.Listener
	channels  net.Listener
	offered   chan net.Conn // the latest channel
	running   sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // nil after Close
}

func newStarts(folder string, host *selfsigned.Pair) (*starts, error) {
	lifelines, err := net.Listen("unix", filepath.Join(folder, LifelineSocket))
	if err != nil {
		return nil, err
	}
	channels, err := net.Listen("unix", filepath.Join(folder, ChannelSocket))
	if err != nil {
		return nil, errors.Join(err, lifelines.Close())
	}
	s := &starts{host: host, lifelines: attach.SameUser(lifelines), channels: attach.SameUser(channels), offered: make(chan net.Conn, 1), open: map[net.Conn]bool{}}
	s.running.Go(func() { accept(s.lifelines, func(conn net.Conn) { s.running.Go(func() { s.hold(conn) }) }) })
	s.running.Go(func() { accept(s.channels, s.offer) })
	return s, nil
}

// accept ends with the listener.
func accept(listener net.Listener, take func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		take(conn)
	}
}

// hold keeps a lifeline until either end closes it.
func (s *starts) hold(conn net.Conn) {
	defer conn.Close()
	if !s.note(conn) {
		return
	}
	defer s.forget(conn)
	pair, err := selfsigned.New()
	if err != nil {
		return
	}
	if _, err := process.StartData(s.host, pair).WriteTo(conn); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

func (s *starts) note(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return false
	}
	s.open[conn] = true
	return true
}

func (s *starts) forget(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// offer replaces a channel that was not taken.
func (s *starts) offer(conn net.Conn) {
	for {
		select {
		case s.offered <- conn:
			return
		default:
			if old := s.channel(); old != nil {
				_ = old.Close()
			}
		}
	}
}

// channel returns the channel that was offered last, once, or nil.
func (s *starts) channel() net.Conn {
	select {
	case conn := <-s.offered:
		return conn
	default:
		return nil
	}
}

// look is how long to wait for what a provider may have sent already.
const look = 10 * time.Millisecond

// serving returns the channel that was offered last if its provider serves it, which shows by
// the HTTP/2 settings that it sends first; else nil. A channel cannot be dialed again. So one of
// a provider that waits in its debugger, or serves a socket instead, stays where it is.
func (s *starts) serving() net.Conn {
	conn := s.channel()
	if conn == nil {
		return nil
	}
	first := make([]byte, 512)
	_ = conn.SetReadDeadline(time.Now().Add(look))
	n, err := conn.Read(first)
	_ = conn.SetReadDeadline(time.Time{})
	switch {
	case n > 0:
		return &channel{conn, first[:n]}
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.putBack(conn)
	default:
		_ = conn.Close()
	}
	return nil
}

// putBack offers a channel again, unless another one has taken its place.
func (s *starts) putBack(conn net.Conn) {
	select {
	case s.offered <- conn:
	default:
		_ = conn.Close()
	}
}

// Close ends all lifelines.
func (s *starts) Close() {
	_, _ = s.lifelines.Close(), s.channels.Close()
	s.mu.Lock()
	for conn := range s.open {
		_ = conn.Close()
	}
	s.open = nil
	s.mu.Unlock()
	s.running.Wait()
	if conn := s.channel(); conn != nil {
		_ = conn.Close()
	}
}
