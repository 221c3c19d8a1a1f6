package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countersign-dev/countersign/internal/unixsocket"
	"github.com/countersign-dev/countersign/providers/kubernetes/cmd/countersign-discovery/config"
)

// pages are the two addresses for operators: one of this machine with everything, one for
// others with probes and metrics. Neither has authentication, a key or a token.
type pages struct{ full, probes *page }

// page is one of them; nil is off.
type page struct {
	listener net.Listener
	server   *http.Server
	local    bool // whoever asks must mean this machine
	handler  atomic.Pointer[http.ServeMux]
	done     chan struct{}
}

// listenPages takes the addresses; until serve they say that nothing is ready.
func listenPages(c config.Status, log *slog.Logger) (*pages, error) {
	p := &pages{}
	var err error
	if p.full, err = listenPage(c.Address, !strings.HasPrefix(c.Address, "unix:"), log); err != nil {
		return nil, fmt.Errorf("status.address is %q: %w", c.Address, err)
	}
	if p.probes, err = listenPage(c.Probes, false, log); err != nil {
		return nil, errors.Join(fmt.Errorf("status.probes is %q: %w", c.Probes, err), p.close())
	}
	return p, nil
}

func listenPage(address string, local bool, log *slog.Logger) (*page, error) {
	if address == "" {
		return nil, nil
	}
	p := &page{local: local, done: make(chan struct{})}
	var err error
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		p.listener, err = unixsocket.Listen(path, 0o600, log)
	} else {
		p.listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	starting := http.NewServeMux()
	starting.HandleFunc("GET /healthz", say(http.StatusOK, "ok"))
	starting.HandleFunc("GET /readyz", say(http.StatusServiceUnavailable, "starting"))
	p.handler.Store(starting)
	p.server = &http.Server{
		Handler:           http.HandlerFunc(p.route),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(p.listener) // ends with close
	}()
	log.Info("status page", "address", p.listener.Addr().String(), "full", local)
	return p, nil
}

// route turns away who came by a name that somebody else may have pointed here (DNS
// rebinding).
func (p *page) route(w http.ResponseWriter, r *http.Request) {
	if p.local && !isLocal(r.Host) {
		http.Error(w, "this page answers to a loopback address only", http.StatusForbidden)
		return
	}
	p.handler.Load().ServeHTTP(w, r)
}

func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// serve shows the service.
func (p *pages) serve(s *service) {
	probes := func() *http.ServeMux {
		mux := http.NewServeMux()
		mux.Handle("GET /healthz", s.server.Probes())
		mux.Handle("GET /readyz", s.server.Probes())
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
		return mux
	}
	if p.probes != nil {
		p.probes.handler.Store(probes())
	}
	if p.full == nil {
		return
	}
	mux := probes()
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(s.report()) // a client that went away
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { show(w, s.report()) })
	p.full.handler.Store(mux)
}

func say(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintln(w, text)
	}
}

func (p *pages) close() error { return errors.Join(p.full.close(), p.probes.close()) }

func (p *page) close() error {
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
