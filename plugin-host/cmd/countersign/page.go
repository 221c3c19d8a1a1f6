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
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/status"
	"github.com/countersign-dev/countersign/sdk/agent"
)

// page is the address for operators and probes: / for people, /healthz, /readyz,
// /metrics, /status. It has no authentication, so it is on this machine only, and has no key.
type page struct {
	listener net.Listener // nil: off
	server   *http.Server
	local    bool // TCP: whoever asks must mean this machine
	handler  atomic.Pointer[http.ServeMux]
	done     chan struct{}
}

// listenPage takes the address; until serve the page says that nothing is ready.
func listenPage(address string, log *slog.Logger) (*page, error) {
	if address == "" {
		return &page{}, nil
	}
	p := &page{local: true, done: make(chan struct{})}
	var err error
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		p.local = false
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
	log.Info("status page", "address", p.listener.Addr().String())
	return p, nil
}

// route turns away who came by a name that somebody else may have pointed here
// (DNS rebinding).
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

// serve shows the agent.
func (p *page) serve(a *agent.Agent, providers *providers, m *metrics, child *proxyChild) {
	m.watch(a)
	if p.listener == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", say(http.StatusOK, "ok"))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if missing := a.Ready(); len(missing) > 0 {
			say(http.StatusServiceUnavailable, "not held: "+strings.Join(missing, ", "))(w, r)
			return
		}
		say(http.StatusOK, "ok")(w, r)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	report := func() status.Report { return reportOf(a, providers, child, m) }
	mux.Handle("GET /{$}", status.Page(report))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(report()) // a client that went away
	})
	p.handler.Store(mux)
}

func say(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintln(w, text)
	}
}

func (p *page) close() error {
	if p.listener == nil {
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
