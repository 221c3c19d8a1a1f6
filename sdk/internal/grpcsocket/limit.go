package grpcsocket

import (
	"log/slog"
	"net"
	"time"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

const (
	// maxConnections of one process; Envoy has a few.
	maxConnections = 16_384
	// minSweep is the least time between two looks for closed connections.
	minSweep = 100 * time.Millisecond
)

// limited is a listener that refuses connections which would use up the descriptors: of the
// process, as without any no provider starts and no file is read, and of other peers.
//
// It does not wrap connections, as gRPC handles a plain one with less memory. So it finds
// out which have been closed by looking at them when there may be too many.
type limited struct {
	net.Listener
	log  *slog.Logger
	room func() int // how many descriptors connections may use
	most int        // connections of one process

	open    []connection
	of      map[unixpeer.Peer]int // of each process
	sweepAt int                   // look at this many
	swept   time.Time
	logged  time.Time
	refused int // since then
}

type connection struct {
	conn *net.UnixConn
	peer unixpeer.Peer
}

func limit(l net.Listener, log *slog.Logger) *limited {
	return &limited{Listener: l, log: log, room: errno.Room, most: maxConnections, of: make(map[unixpeer.Peer]int), sweepAt: 64}
}

// Accept implements [net.Listener]. gRPC calls it in one goroutine.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, ok := conn.(*net.UnixConn)
		if !ok || l.admit(c) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// admit counts a connection, or reports that it is one too many.
func (l *limited) admit(c *net.UnixConn) bool {
	peer, err := unixpeer.Of(c)
	if err != nil {
		return true // the handshake asks again, and reports what is wrong
	}
	room := l.room()
	most := min(l.most, room/2)
	now := time.Now()
	if len(l.open) >= l.sweepAt || l.of[peer] >= most && now.Sub(l.swept) >= minSweep {
		l.sweep(now)
	}
	if l.of[peer] >= most || descriptor(c) >= room {
		l.refuse(peer, now)
		return false
	}
	l.open = append(l.open, connection{c, peer})
	l.of[peer]++
	return true
}

// sweep forgets closed connections.
func (l *limited) sweep(now time.Time) {
	still := l.open[:0]
	clear(l.of)
	for _, c := range l.open {
		if descriptor(c.conn) >= 0 {
			still = append(still, c)
			l.of[c.peer]++
		}
	}
	clear(l.open[len(still):])
	l.open, l.swept, l.sweepAt = still, now, max(64, 2*len(still))
}

// descriptor returns the number of a connection's descriptor, or -1 if it is closed. The
// system gives the lowest free number, so a high one means that few are left.
func descriptor(c *net.UnixConn) int {
	n := -1
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n = int(fd) })
	}
	return n
}

// refuse logs once a minute.
func (l *limited) refuse(peer unixpeer.Peer, now time.Time) {
	l.refused++
	if !l.logged.IsZero() && now.Sub(l.logged) < time.Minute {
		return
	}
	l.log.Warn("connection refused: too many are open; if they should be, raise the limit for open files", "limit", errno.OpenFiles(), "uid", peer.UID, "pid", peer.PID, "of_this_process", l.of[peer], "open", len(l.open), "refused", l.refused)
	l.logged, l.refused = now, 0
}
