// Package operatorpage serves HTTP to operators and probes, without authentication: on a Unix
// socket, on a loopback address, or on any address if the content is not confidential. A
// program calls [Listen] when it starts, then [Page.Show] when there is something to show.
package operatorpage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
)

// Page is one address. A nil one is off: its methods do nothing.
type Page struct {
	listener net.Listener
	server   *http.Server
	local    bool // TCP: requests must name this machine
	handler  atomic.Pointer[http.Handler]
	done     chan struct{}
}

// Listen takes the address, host:port or unix:PATH; an empty one has no page. Until Show,
// /healthz is well and /readyz is not ready. If it is local, it answers only requests for
// a loopback name or address.
func Listen(address string, local bool, log *slog.Logger) (*Page, error) {
	if address == "" {
		return nil, nil
	}
	var listener net.Listener
	var err error
	isSocket := strings.HasPrefix(address, "unix:")
	if isSocket {
		listener, err = unixsocket.Listen(address, 0o600, log)
	} else {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	return serve(listener, local && !isSocket, "status page", log), nil
}

// Serve is Listen with a listener that the caller has, for an address that others reach. The log
// calls it what.
func Serve(listener net.Listener, what string, log *slog.Logger) *Page {
	return serve(listener, false, what, log)
}

func serve(listener net.Listener, local bool, what string, log *slog.Logger) *Page {
	p := &Page{listener: listener, local: local, done: make(chan struct{})}
	starting := http.NewServeMux()
	starting.HandleFunc("GET /healthz", Say(http.StatusOK, "ok"))
	starting.HandleFunc("GET /readyz", Say(http.StatusServiceUnavailable, "starting"))
	p.Show(starting)
	p.server = &http.Server{
		Handler:           http.HandlerFunc(p.route),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(p.listener) // ends with Close
	}()
	log.Info(what, "address", p.listener.Addr().String())
	return p
}

type connKey struct{}

// Conn returns the connection of a request from its context, to identify the peer of a Unix socket.
func Conn(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return conn
}

// Show answers with h from now on.
func (p *Page) Show(h http.Handler) {
	if p != nil {
		p.handler.Store(&h)
	}
}

// route rejects requests by a name that an attacker may have pointed here
// (DNS rebinding).
func (p *Page) route(w http.ResponseWriter, r *http.Request) {
	if p.local && !isLocal(r.Host) {
		http.Error(w, "this page answers to a loopback address only", http.StatusForbidden)
		return
	}
	(*p.handler.Load()).ServeHTTP(w, r)
}

func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Say answers with a line of text.
func Say(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintln(w, text)
	}
}

// Close ends the page within a second, whatever requests are open, and returns when all is
// quiet.
func (p *Page) Close() error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = p.server.Close()
	}
	<-p.done
	if s, ok := p.listener.(*unixsocket.Socket); ok {
		err = errors.Join(err, s.Close())
	}
	return err
}
