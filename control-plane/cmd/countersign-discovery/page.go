package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countersign-dev/countersign/control-plane/cmd/countersign-discovery/config"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
)

// pages serves operators at two addresses: everything on this machine, and probes and
// metrics for others. Neither has authentication, and neither shows a key or a token.
type pages struct{ full, probes *operatorpage.Page }

// listenPages listens on both addresses; until serve is called they report not ready.
func listenPages(c config.Status, log *slog.Logger) (*pages, error) {
	p := &pages{}
	var err error
	if p.full, err = operatorpage.Listen(c.Address, true, log); err != nil {
		return nil, fmt.Errorf("status.address is %q: %w", c.Address, err)
	}
	if p.probes, err = operatorpage.Listen(c.Probes, false, log); err != nil {
		return nil, errors.Join(fmt.Errorf("status.probes is %q: %w", c.Probes, err), p.close())
	}
	return p, nil
}

// serve starts to show the service.
func (p *pages) serve(s *service) {
	probes := func() *http.ServeMux {
		mux := http.NewServeMux()
		mux.Handle("GET /healthz", s.server.Probes())
		mux.Handle("GET /readyz", s.server.Probes())
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
		return mux
	}
	p.probes.Show(probes())
	mux := probes()
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(s.report()) // the client went away
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { show(w, s.report()) })
	p.full.Show(mux)
}

func (p *pages) close() error { return errors.Join(p.full.Close(), p.probes.Close()) }
