package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/internal/text"
)

// Pages serves operators at two addresses: everything on this machine, and probes and
// metrics for others. Neither has authentication, and neither shows a key or a token.
type Pages struct{ full, probes *operatorpage.Page }

// Content is what the pages show.
type Content struct {
	Probes  http.Handler // of /healthz and /readyz
	Metrics *prometheus.Registry
	Report  func() any                // of /status.json
	Page    func(http.ResponseWriter) // of /
}

// listen listens on both addresses; until Show is called they report not ready.
func listen(c settings.Status, log *slog.Logger) (*Pages, error) {
	p := &Pages{}
	var err error
	if p.full, err = operatorpage.Listen(c.Address, true, log); err != nil {
		return nil, fmt.Errorf("status.address is %q: %w", c.Address, err)
	}
	if p.probes, err = operatorpage.Listen(c.Probes, false, log); err != nil {
		return nil, errors.Join(fmt.Errorf("status.probes is %q: %w", c.Probes, err), p.Close())
	}
	return p, nil
}

// Show starts to show the content.
func (p *Pages) Show(c Content) {
	p.probes.Show(c.probes())
	mux := c.probes()
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = text.WriteJSON(w, c.Report(), "  ") // the client went away
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { c.Page(w) })
	p.full.Show(mux)
}

func (c Content) probes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", c.Probes)
	mux.Handle("GET /readyz", c.Probes)
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))
	return mux
}

// Close ends both within a second.
func (p *Pages) Close() error { return errors.Join(p.full.Close(), p.probes.Close()) }
