package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Watch adds what is collected at each scrape: from the agent, from its report and from the process.
func (m *Metrics) Watch(a *agent.Agent, report func() status.Report) {
	m.Registry.MustRegister(&collector{a}, &workloads{a}, &demanded{a}, &relayed{a}, reported(report),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

var (
	heldDesc    = prometheus.NewDesc("countersign_secret_held", "1 if the secret can be served now.", []string{"secret"}, nil)
	pendingDesc = prometheus.NewDesc("countersign_secret_pending", "1 while the CA has a request for the secret and has not decided on it.", []string{"secret"}, nil)
	expiryDesc  = prometheus.NewDesc("countersign_secret_expiry_timestamp_seconds", "When the held secret expires.", []string{"secret"}, nil)
	startDesc   = prometheus.NewDesc("countersign_secret_start_timestamp_seconds", "When the lifetime of the held secret began.", []string{"secret"}, nil)
	rootsDesc   = prometheus.NewDesc("countersign_secret_roots", "Roots in a held trust bundle.", []string{"secret"}, nil)
	renewDesc   = prometheus.NewDesc("countersign_secret_renew_timestamp_seconds", "When the held certificate is renewed.", []string{"secret"}, nil)
	tokenDesc   = prometheus.NewDesc("countersign_secret_token_expiry_timestamp_seconds", "When the token for the next renewal expires.", []string{"secret"}, nil)
	crlDesc     = prometheus.NewDesc("countersign_crl_next_update_timestamp_seconds", "When the first revocation list of a trust bundle expires.", []string{"secret"}, nil)
	crlSoonDesc = prometheus.NewDesc("countersign_crl_last_fifth_timestamp_seconds", "When the last fifth of the life of a revocation list of a trust bundle begins, of the first to get there.", []string{"secret"}, nil)
	lackDesc    = prometheus.NewDesc("countersign_crl_missing", "CAs of a trust bundle that have no current revocation list.", []string{"secret"}, nil)
	streamsDesc = prometheus.NewDesc("countersign_streams", "Open SDS streams and fetches.", nil, nil)
)

var (
	stateDesc    = prometheus.NewDesc("countersign_provider_state", "1 for the current state of a provider.", []string{"provider", "state"}, nil)
	restartsDesc = prometheus.NewDesc("countersign_provider_restarts_total", "Restarts of a provider after it had exited.", []string{"provider"}, nil)
	reloadsDesc  = prometheus.NewDesc("countersign_provider_reloads_total", "Reloads of a provider with a new binary or new settings.", []string{"provider"}, nil)
	refusedDesc  = prometheus.NewDesc("countersign_provider_reload_refused", "1 if the last reload of a provider was rejected, or a secret that changed.", []string{"provider"}, nil)
)

// supervised collects the current states of the providers.
type supervised func() map[string]*pluginhost.Provider

// Describe implements [prometheus.Collector].
func (s supervised) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{stateDesc, restartsDesc, reloadsDesc, refusedDesc} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (s supervised) Collect(to chan<- prometheus.Metric) {
	for name, p := range s() {
		status := p.Status()
		refused := 0.0
		if status.LastReload+status.LastSecret != "" {
			refused = 1
		}
		to <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, 1, name, string(status.State))
		to <- prometheus.MustNewConstMetric(restartsDesc, prometheus.CounterValue, float64(status.Restarts), name)
		to <- prometheus.MustNewConstMetric(reloadsDesc, prometheus.CounterValue, float64(status.Reloads), name)
		to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.GaugeValue, refused, name)
	}
}

// collector collects the current state of the agent.
type collector struct{ agent *agent.Agent }

// Describe implements [prometheus.Collector].
func (h *collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{heldDesc, pendingDesc, startDesc, expiryDesc, rootsDesc, renewDesc, tokenDesc, crlDesc, crlSoonDesc, lackDesc, streamsDesc} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (h *collector) Collect(to chan<- prometheus.Metric) {
	value := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	value(streamsDesc, float64(h.agent.Streams()))
	for _, s := range h.agent.Status() {
		value(heldDesc, number(s.Held), s.Name)
		value(pendingDesc, number(s.Pending != nil), s.Name)
		if !s.TokenExpiry.IsZero() {
			value(tokenDesc, float64(s.TokenExpiry.Unix()), s.Name)
		}
		if s.Revocation != nil {
			value(lackDesc, float64(len(s.Revocation.Without)), s.Name)
		}
		if first := s.Revocation.First(); !first.IsZero() {
			value(crlDesc, float64(first.Unix()), s.Name)
			value(crlSoonDesc, float64(lastFifth(s.Revocation.Lists).Unix()), s.Name)
		}
		if s.Item == nil {
			continue
		}
		value(startDesc, float64(s.Item.NotBefore.Unix()), s.Name)
		value(expiryDesc, float64(s.Item.NotAfter.Unix()), s.Name)
		if s.Item.Kind == secret.TrustBundle {
			value(rootsDesc, float64(len(s.Item.RootFingerprints)), s.Name)
		}
		if !s.Item.RenewAt.IsZero() {
			value(renewDesc, float64(s.Item.RenewAt.Unix()), s.Name)
		}
	}
}

// lastFifth returns when the first of the lists gets into the last fifth of its life, where the
// agent warns. That need not be the one that ends first: what ends in an hour may have been made
// for an hour.
func lastFifth(lists []secret.RevocationList) (first time.Time) {
	for _, list := range lists {
		begins := list.NextUpdate.Add(-list.NextUpdate.Sub(list.ThisUpdate) / 5)
		if first.IsZero() || begins.Before(first) {
			first = begins
		}
	}
	return first
}
