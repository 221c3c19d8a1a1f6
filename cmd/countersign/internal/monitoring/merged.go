package monitoring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/internal/transport"
)

const (
	// fetchTimeout limits the request to one source, so that a source that hangs does not
	// cost the scrape, which has 10 s by default.
	fetchTimeout = 4 * time.Second
	// maxMetrics limits the answer of one source.
	maxMetrics = 16 << 20
	// maxScrapes limits the scrapes at a time, and so the memory for them.
	maxScrapes = 2
)

// Merged serves the metrics of a registry, followed by those of the sources as they are:
// http:// URLs, or unix:PATH, an admin socket of Envoy. A source that fails is left out and
// counted. With sources, the names of the agent's own process begin with countersign_agent_.
func Merged(registry *prometheus.Registry, sources []string, log *slog.Logger) http.Handler {
	var gatherer prometheus.Gatherer = registry
	if len(sources) > 0 {
		gatherer = apart{registry}
	}
	m := &merged{
		// Without compression and negotiation, the text of others can follow.
		own:   promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{DisableCompression: true}),
		slots: make(chan struct{}, maxScrapes), log: log,
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "countersign_metrics_from_failures_total", Help: "Scrapes without the metrics of another program (status.metrics_from), as it failed.",
		}, []string{"source"}),
	}
	for _, s := range sources {
		m.sources = append(m.sources, newSource(s))
		m.failures.WithLabelValues(m.sources[len(m.sources)-1].name)
	}
	if len(sources) > 0 {
		registry.MustRegister(m.failures)
	}
	return m
}

// apart renames what each program of a Prometheus library has, go_… and process_…: the
// application has them, too, and a parser may refuse a page with a name that comes twice.
type apart struct{ *prometheus.Registry }

// Gather implements [prometheus.Gatherer]. What a registry gathers is the caller's own.
func (a apart) Gather() ([]*dto.MetricFamily, error) {
	families, err := a.Registry.Gather()
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			f.Name = new("countersign_agent_" + name)
		}
	}
	return families, err
}

type merged struct {
	own      http.Handler
	sources  []source
	slots    chan struct{}
	failures *prometheus.CounterVec
	log      *slog.Logger
}

// ServeHTTP implements [http.Handler].
func (m *merged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	default:
		operatorpage.Say(http.StatusServiceUnavailable, "too many scrapes at a time")(w, r)
		return
	}
	others := m.fetch(r.Context())
	plain := r.Clone(r.Context())
	plain.Header.Del("Accept")
	m.own.ServeHTTP(w, plain)
	for _, text := range others {
		_, _ = w.Write(text) //nolint:gosec // metrics, not HTML; the client may have gone away
	}
}

// fetch asks all sources at once, before the agent's own metrics, which count its failures.
func (m *merged) fetch(ctx context.Context) [][]byte {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	texts := make([][]byte, len(m.sources))
	var all sync.WaitGroup
	for i, s := range m.sources {
		all.Go(func() {
			var err error
			if texts[i], err = s.fetch(ctx); err != nil {
				m.failures.WithLabelValues(s.name).Inc()
				m.log.Debug("cannot merge the metrics of another program", "source", s.name, "error", err)
			}
		})
	}
	all.Wait()
	return texts
}

// source is where another program has its metrics.
type source struct {
	name, url string
	client    *http.Client
}

func newSource(where string) source {
	s := source{name: text.WithoutPassword(where), url: where}
	var socket net.Addr // nil: the host of the URL
	if strings.HasPrefix(where, "unix:") {
		s.url = "http://localhost/stats/prometheus"
		socket, _ = unixsocket.ParseAddress(where) // the configuration was checked
	}
	s.client = &http.Client{Transport: transport.Local(socket), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s
}

func (s source) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || err != nil || kind != "text/plain" {
		return nil, fmt.Errorf("the answer is %.64q of type %.64q, not text", resp.Status, resp.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMetrics+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxMetrics:
		return nil, errors.New("the answer is too long")
	case len(body) > 0 && body[len(body)-1] != '\n':
		body = append(body, '\n') // what follows begins on a line of its own
	}
	return body, nil
}
