package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/monitoring"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// outsidePages are the addresses for those outside of this machine: health on one, metrics
// on the other, and nothing else on either.
type outsidePages struct {
	status          config.Status
	certificate     *operatorpage.Certificate // of the metrics; nil: plain HTTP
	probes, metrics *operatorpage.Page
	log             *slog.Logger
}

func listenOutside(c config.Status, log *slog.Logger) (*outsidePages, error) {
	p := &outsidePages{status: c, log: log}
	if c.MetricsSecret != "" {
		p.certificate = &operatorpage.Certificate{}
	}
	if c.MetricsTokenFile != "" {
		if _, err := monitoring.ReadToken(c.MetricsTokenFile); err != nil {
			return nil, fmt.Errorf("status.metrics_token_file: %w", err)
		}
	}
	var err error
	if p.probes, err = monitoring.Listen(c.Probes, nil, log); err != nil {
		return nil, fmt.Errorf("status.probes: %w", err)
	}
	if p.metrics, err = monitoring.Listen(c.Metrics, p.certificate, log); err != nil {
		return nil, errors.Join(fmt.Errorf("status.metrics: %w", err), p.close())
	}
	return p, nil
}

// show starts to show what there is. /healthz/ready and /stats/prometheus are the paths of
// Istio's agent.
func (p *outsidePages) show(source secret.Source, registry *prometheus.Registry, ready http.HandlerFunc) {
	probes := http.NewServeMux()
	probes.HandleFunc("GET /healthz", operatorpage.Say(http.StatusOK, "ok"))
	probes.HandleFunc("GET /readyz", ready)
	probes.HandleFunc("GET /healthz/ready", ready)
	p.probes.Show(probes)
	if p.metrics == nil {
		return
	}
	if p.certificate != nil {
		cfg, err := tlsconfig.Server(metricsTLS(p.status, source))
		if err != nil {
			panic(err) // never with a source and a name
		}
		p.certificate.Take(cfg)
	}
	metrics := http.NewServeMux()
	merged := monitoring.Guarded(p.status.MetricsTokenFile, monitoring.Merged(registry, p.status.MetricsFrom, p.log))
	metrics.Handle("GET /metrics", merged)
	metrics.Handle("GET /stats/prometheus", merged)
	p.metrics.Show(metrics)
}

// metricsTLS returns the certificate that the metrics are served with, and the accepted clients.
func metricsTLS(c config.Status, source secret.Source) tlsconfig.Options {
	o := tlsconfig.Options{Source: source, Certificate: c.MetricsSecret}
	if c.MetricsClientRoots != "" {
		o.Roots, o.Peer = c.MetricsClientRoots, monitoring.Clients(c.MetricsClientNames)
	}
	return o
}

// close ends both within a second each.
func (p *outsidePages) close() error { return errors.Join(p.probes.Close(), p.metrics.Close()) }
