package program

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// certified listens while the door has a certificate that has not ended. Without one, a client's
// connection is refused at once and it tries another replica; a TLS alert need not make it do that.
// Connections that exist are kept. One goroutine calls Accept.
type certified struct {
	door    *door
	open    context.Context // ends with Close
	end     context.CancelFunc
	watches sync.WaitGroup

	mu      sync.Mutex
	address net.Addr     // that it listens on, or did last
	socket  net.Listener // nil while there is no certificate
}

func newCertified(d *door) *certified {
	l := &certified{door: d, address: &net.TCPAddr{}}
	l.open, l.end = context.WithCancel(context.Background())
	return l
}

// Accept implements [net.Listener]. It waits for a certificate.
func (l *certified) Accept() (net.Conn, error) {
	for {
		socket, err := l.listening()
		if err != nil {
			return nil, err
		}
		conn, err := socket.Accept()
		if !errors.Is(err, net.ErrClosed) || l.open.Err() != nil {
			return conn, err
		}
	}
}

// listening returns the socket, which it opens once there is a certificate.
func (l *certified) listening() (net.Listener, error) {
	l.mu.Lock()
	socket := l.socket
	l.mu.Unlock()
	if socket != nil {
		return socket, nil
	}
	if _, err := secret.Get(l.open, l.door.certificate, secret.Caller{}, agent.DefaultSecret); err != nil {
		if l.open.Err() != nil {
			err = net.ErrClosed
		}
		return nil, err
	}
	for {
		socket, err := l.listen()
		if err == nil || l.open.Err() != nil || l.door.address.Load() == nil {
			return socket, err
		}
		l.door.of.log.Error("failed to listen again; trying once a second", "error", err) // the port was taken meanwhile
		rotation.Sleep(l.open, time.Second, clock.Wall, nil)
	}
}

// listen opens the socket, at the same port as before.
func (l *certified) listen() (net.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Err() != nil {
		return nil, net.ErrClosed
	}
	at := l.door.of.config.Istio.Listen
	if before := l.door.address.Load(); before != nil {
		at = *before
	}
	socket, err := l.door.listen(at)
	if err != nil {
		return nil, err
	}
	l.socket, l.address = socket, socket.Addr()
	address := l.address.String()
	l.door.address.Store(&address)
	l.door.listening.Store(true)
	l.door.of.log.Info("serving Istio's CA API", "address", address)
	l.watches.Go(l.watch)
	return socket, nil
}

// watch closes the socket when the certificate has ended.
func (l *certified) watch() {
	changed := make(notice, 1)
	stop, err := l.door.certificate.Watch(secret.Caller{}, agent.DefaultSecret, func(string) { changed.give() })
	if err != nil {
		return // the source is closed, as the program ends
	}
	defer stop()
	for l.open.Err() == nil {
		item, err := l.door.certificate.Peek(secret.Caller{}, agent.DefaultSecret)
		if err != nil {
			l.door.of.log.Error("the certificate of Istio's CA API has ended; not listening until there is another", "error", err)
			_ = l.pause()
			return
		}
		rotation.Sleep(l.open, max(time.Until(item.NotAfter), time.Millisecond), clock.Wall, changed)
	}
}

// pause closes the socket.
func (l *certified) pause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket == nil {
		return nil
	}
	socket := l.socket
	l.socket = nil
	l.door.listening.Store(false)
	return socket.Close()
}

// Close implements [net.Listener].
func (l *certified) Close() error {
	l.end()
	err := l.pause()
	l.watches.Wait()
	return err
}

// Addr implements [net.Listener].
func (l *certified) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}
