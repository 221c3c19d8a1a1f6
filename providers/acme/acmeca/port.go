package acmeca

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxCallers are answered at once; strangers reach the port.
	maxCallers = 128
	// callerTime bounds one connection.
	callerTime = 10 * time.Second
	maxHeader  = 8 << 10
	// portPause is the time between two attempts to listen where another process does, such as
	// the provider that this one replaces.
	portPause = 100 * time.Millisecond
	portWait  = time.Minute
	// The pauses after connections that cannot be accepted double from the first to the longest,
	// which Close waits for at most.
	acceptPause, longestAcceptPause = 5 * time.Millisecond, time.Second
)

// port listens while at least one answer is needed.
type port struct {
	address string
	log     *slog.Logger
	// serve answers on a listener until that is closed.
	serve func(net.Listener)

	turn  chan struct{} // its holder opens or closes the listener
	users int
	open  net.Listener
	done  chan struct{} // closed when serve has returned
}

func newPort(address string, log *slog.Logger) *port {
	return &port{address: address, log: log, turn: make(chan struct{}, 1)}
}

// use opens the port, or shares it.
func (p *port) use(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ca.Errorf(ca.ReasonFor(ctx.Err()), "waiting to listen at %s", p.address)
	}
	if p.users == 0 {
		listener, err := p.listen(ctx)
		if err != nil {
			return ca.Errorf(ca.Unavailable, "listen: %w", err)
		}
		p.open, p.done = listener, make(chan struct{})
		go func(done chan struct{}) {
			defer close(done)
			p.serve(&limited{Listener: listener, room: make(chan struct{}, maxCallers)})
		}(p.done)
	}
	p.users++
	return nil
}

// listen waits for an address that is taken.
func (p *port) listen(ctx context.Context) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	for {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.address)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || sleep(ctx, portPause) != nil {
			return listener, err
		}
	}
}

// leave closes the port after its last user.
func (p *port) leave() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.users--; p.users > 0 {
		return
	}
	_ = p.open.Close() // nothing can be done about it
	<-p.done
}

// limited is a listener that closes connections beyond a number, and ends by Close alone: a
// shortage of descriptors passes.
type limited struct {
	net.Listener
	room chan struct{}
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	for pause := acceptPause; ; {
		conn, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			time.Sleep(pause)
			pause = min(2*pause, longestAcceptPause)
			continue
		}
		pause = acceptPause
		select {
		case l.room <- struct{}{}:
			_ = conn.SetDeadline(time.Now().Add(callerTime)) // an error shows at the next read
			return &counted{Conn: conn, room: l.room}, nil
		default:
			_ = conn.Close() // one too many
		}
	}
}

type counted struct {
	net.Conn
	room chan struct{}
	once sync.Once
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.once.Do(func() { <-c.room })
	return c.Conn.Close()
}

// table has what is answered now.
type table[T any] struct {
	mu  sync.Mutex
	all map[string][]T // several orders may prove one name at once
}

func (t *table[T]) add(key string, value T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string][]T{}
	}
	t.all[key] = append(t.all[key], value)
}

// last returns the latest answer.
func (t *table[T]) last(key string) (value T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if all := t.all[key]; len(all) > 0 {
		return all[len(all)-1], true
	}
	return value, false
}

func (t *table[T]) remove(key string, is func(T) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rest []T
	for _, one := range t.all[key] {
		if !is(one) {
			rest = append(rest, one)
		}
	}
	if t.all[key] = rest; len(rest) == 0 {
		delete(t.all, key)
	}
}

// httpAnswers answers http-01 at a port (RFC 8555, section 8.3).
type httpAnswers struct {
	*port
	proofs table[string]
}

func newHTTP(address string, log *slog.Logger) *httpAnswers {
	h := &httpAnswers{port: newPort(address, log)}
	h.serve = func(l net.Listener) {
		server := &http.Server{
			Handler: h, ReadTimeout: callerTime, WriteTimeout: callerTime, MaxHeaderBytes: maxHeader,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // strangers' faults
		}
		server.SetKeepAlivesEnabled(false)
		_ = server.Serve(l) // ends with the listener
		_ = server.Close()
	}
	return h
}

// ServeHTTP answers with the proof of a token that is asked for now, and with nothing else.
func (h *httpAnswers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.URL.Path, "/"+wellKnown+"/")
	proof, found := h.proofs.last(token)
	if !ok || !found || r.Method != http.MethodGet {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.WriteString(w, proof) //nolint:gosec // base64url, of a token that was checked
}

func (h *httpAnswers) present(ctx context.Context, c challenge) (func(context.Context) error, error) {
	if err := h.use(ctx); err != nil {
		return nil, err
	}
	h.proofs.add(c.token, c.proof)
	return func(context.Context) error {
		h.proofs.remove(c.token, func(proof string) bool { return proof == c.proof })
		h.leave()
		return nil
	}, nil
}

func (*httpAnswers) settle(context.Context) error { return nil }
