// Package inbound bounds the bytes of unfinished gRPC requests that the servers of this process
// hold, in sum over all streams and connections. gRPC bounds one message, and has no hook between
// the length of a message and its bytes: so [Credentials] hand it a connection that follows the
// frames. At the bound, the connection with the oldest unfinished request is closed, first one
// that was never answered. All is safe for concurrent use.
package inbound

import (
	"cmp"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/memory"
)

// Sum is how much the unfinished requests of many connections may take.
type Sum struct {
	most    int64
	repeats loglimit.Repeats

	mu   sync.Mutex
	used int64
	open map[*conn]usage // those that hold some
}

// usage is what a connection holds.
type usage struct {
	bytes    int64
	since    time.Time // when it held none for the last time
	answered bool
}

// NewSum returns a sum of so many bytes.
func NewSum(most int64) *Sum { return &Sum{most: most, open: map[*conn]usage{}} }

// Process is the sum of all servers of this process: half the budget of [memory.Process], besides it.
var Process = sync.OnceValue(func() *Sum { return NewSum(memory.Process().Most() / 2) })

// update looks at what a connection holds, and closes connections until the sum is in its bound.
func (s *Sum) update(c *conn) {
	for _, c := range s.excess(c) {
		c.end()
	}
}

func (s *Sum) excess(c *conn) (over []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := c.current()
	s.remove(c)
	if now.bytes > 0 {
		s.open[c] = now
		s.used += now.bytes
	}
	for s.used > s.most {
		oldest := s.oldest()
		s.remove(oldest)
		over = append(over, oldest)
	}
	return over
}

func (s *Sum) remove(c *conn) {
	s.used -= s.open[c].bytes
	delete(s.open, c)
}

// oldest returns the connection to end. The caller holds the lock.
func (s *Sum) oldest() (oldest *conn) {
	var its usage
	for c, h := range s.open {
		if oldest == nil || before(h, its) < 0 {
			oldest, its = c, h
		}
	}
	return oldest
}

func before(a, b usage) int {
	if a.answered != b.answered {
		if b.answered {
			return -1
		}
		return 1
	}
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(b.bytes, a.bytes))
}

// Credentials returns a server's credentials whose connections count in the sum.
func (s *Sum) Credentials(of credentials.TransportCredentials, log *slog.Logger) credentials.TransportCredentials {
	return followed{of, s, log}
}

type followed struct {
	credentials.TransportCredentials
	sum *Sum
	log *slog.Logger
}

// ServerHandshake implements [credentials.TransportCredentials].
func (f followed) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	plain, info, err := f.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return pooled(newConn(f.sum, plain, f.log)), info, nil
}

// Clone implements [credentials.TransportCredentials].
func (f followed) Clone() credentials.TransportCredentials {
	return followed{f.TransportCredentials.Clone(), f.sum, f.log}
}
