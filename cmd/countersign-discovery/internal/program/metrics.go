package program

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// metrics counts the engine's events; all other values are collected on each scrape. Labels
// come from the configuration and from fixed lists, never from a client.
type metrics struct {
	registry  *prometheus.Registry
	rotations *prometheus.CounterVec
	failures  *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "countersign_discovery_" + name, Help: help}, labels)
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		rotations: counter("secret_rotations_total", "New server certificates, by authority.", "secret", "authority"),
		failures:  counter("failures_total", "Failed attempts to get the server's certificate or roots.", "authority", "secret", "reason"),
	}
	m.registry.MustRegister(m.rotations, m.failures,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// secret receives the events of the engine and of the file source.
func (m *metrics) secret(e secret.Event) {
	switch e.Kind {
	case secret.Rotated:
		m.rotations.WithLabelValues(e.Secret, e.Authority).Inc()
	case secret.Failed:
		m.failures.WithLabelValues(e.Authority, e.Secret, e.Reason).Inc()
	}
}

// watch adds the values collected on each scrape.
func (m *metrics) watch(s *service) { m.registry.MustRegister(collector{s}) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("countersign_discovery_"+name, help, labels, nil)
}

var (
	readyDesc    = desc("ready", "1 if streams are accepted.")
	streamsDesc  = desc("streams", "Open streams and fetches.")
	subsDesc     = desc("subscribed_streams", "Open streams with a subscription to a type.", "type")
	refusingDesc = desc("refusing_streams", "Open streams whose client rejected a resource or the last response of a type.", "type")
	pushesDesc   = desc("pushes_total", "Responses sent.", "type")
	nacksDesc    = desc("nacks_total", "Responses rejected by clients.", "type")
	namesDesc    = desc("refused_names_total", "Names left out because they are unknown or not for the caller.", "type")
	knownDesc    = desc("authentications_total", "Authenticated callers, by kind of credential.", "kind")
	refusalsDesc = desc("refused_streams_total", "Rejected streams, by reason.", "reason")
	endedDesc    = desc("ended_streams_total", "Streams closed by the server, by reason.", "reason")
	sentDesc     = desc("push_seconds", "Time from a change to its push to a stream.")
	ackedDesc    = desc("ack_seconds", "Time from a change to its acknowledgement by a client.")
	heldDesc     = desc("certificate_held", "1 if the server holds a valid version of its own secret.", "secret")
	startDesc    = desc("certificate_start_timestamp_seconds", "Start of the held secret's validity.", "secret")
	expiryDesc   = desc("certificate_expiry_timestamp_seconds", "Expiry of the held secret.", "secret")
	rootsDesc    = desc("trust_domain_roots", "Number of roots held for a trust domain.", "trust_domain")
	problemDesc  = desc("trust_domain_problem", "1 if the roots of a trust domain cannot be refreshed.", "trust_domain")
	filesDesc    = desc("resource_files", "Files in the resource folder, by state: served, kept (invalid; its last valid version is served), refused.", "state")
	folderDesc   = desc("resource_folder_problem", "1 if the resource folder cannot be read.")
)

// collector collects the service's current state.
type collector struct{ *service }

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		readyDesc, streamsDesc, subsDesc, refusingDesc, pushesDesc, nacksDesc, namesDesc, knownDesc, refusalsDesc, endedDesc, sentDesc, ackedDesc,
		heldDesc, startDesc, expiryDesc, rootsDesc, problemDesc, filesDesc, folderDesc,
	} {
		to <- d
	}
	c.clusters.describe(to)
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	g := gatherer{to}
	g.gauge(readyDesc, number(c.ready() == nil))
	g.server(c.server.Metrics())
	g.held(c.held())
	for _, d := range c.trust.status(c.config.TrustDomains) {
		g.gauge(rootsDesc, float64(d.Roots), d.Name)
		g.gauge(problemDesc, number(d.Problem != ""), d.Name)
	}
	if c.resources != nil {
		g.folder(c.resources.Status())
	}
	c.clusters.collect(g)
}

// gatherer sends values to a scrape.
type gatherer struct{ to chan<- prometheus.Metric }

func (g gatherer) gauge(d *prometheus.Desc, v float64, labels ...string) {
	g.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (g gatherer) counter(d *prometheus.Desc, v uint64, labels ...string) {
	g.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (g gatherer) held(all []secret.Status) {
	for _, s := range all {
		g.gauge(heldDesc, number(s.Held), s.Name)
		if s.Item != nil {
			g.gauge(startDesc, float64(s.Item.NotBefore.Unix()), s.Name)
			g.gauge(expiryDesc, float64(s.Item.NotAfter.Unix()), s.Name)
		}
	}
}

func (g gatherer) folder(s folder.Status) {
	counts := map[folder.State]int{}
	for _, f := range s.Files {
		counts[f.State]++
	}
	for _, state := range []folder.State{folder.Served, folder.Kept, folder.Refused} {
		g.gauge(filesDesc, float64(counts[state]), string(state))
	}
	g.gauge(folderDesc, number(s.Fault != ""))
}

func (g gatherer) server(m discovery.Metrics) {
	g.gauge(streamsDesc, float64(m.Streams))
	for d, counts := range map[*prometheus.Desc]map[string]int{subsDesc: m.Subscribed, refusingDesc: m.Refusing} {
		for url, n := range counts {
			g.gauge(d, float64(n), url)
		}
	}
	for d, counts := range map[*prometheus.Desc]map[string]uint64{
		pushesDesc: m.Pushes, nacksDesc: m.Nacks, namesDesc: m.Names, refusalsDesc: m.Refusals, endedDesc: m.Ended,
	} {
		for label, n := range counts {
			g.counter(d, n, label)
		}
	}
	for kind, n := range m.Authentications {
		g.counter(knownDesc, n, string(kind))
	}
	g.histogram(sentDesc, m.Sent)
	g.histogram(ackedDesc, m.Acked)
}

func (g gatherer) histogram(d *prometheus.Desc, h discovery.Histogram) {
	g.to <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum.Seconds(), h.Buckets)
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
