package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/discovery/folder"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// metrics counts what the engine tells; all else is read when somebody asks. Labels come
// from the configuration and from fixed lists, never from a client.
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
		rotations: counter("secret_rotations_total", "New certificates of the server, by who signed them.", "secret", "authority"),
		failures:  counter("failures_total", "Failed attempts to get the server's certificate or roots.", "authority", "secret", "reason"),
	}
	m.registry.MustRegister(m.rotations, m.failures,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// secret is told by the engine, and by the reader of files.
func (m *metrics) secret(e secret.Event) {
	switch e.Type {
	case secret.Rotated:
		m.rotations.WithLabelValues(e.Secret, e.Authority).Inc()
	case secret.Failed:
		m.failures.WithLabelValues(e.Authority, e.Secret, e.Reason).Inc()
	}
}

// watch adds what is read off the service whenever somebody asks.
func (m *metrics) watch(s *service) { m.registry.MustRegister(collector{s}) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("countersign_discovery_"+name, help, labels, nil)
}

var (
	readyDesc    = desc("ready", "1 where streams are answered.")
	streamsDesc  = desc("streams", "Open streams and fetches.")
	subsDesc     = desc("subscribed_streams", "Open streams that watch something of a type.", "type")
	refusingDesc = desc("refusing_streams", "Open streams whose client has refused what it was sent last of a type.", "type")
	pushesDesc   = desc("pushes_total", "Answers sent.", "type")
	nacksDesc    = desc("nacks_total", "Answers that clients have refused.", "type")
	namesDesc    = desc("refused_names_total", "Names left out, as unknown or not for the caller.", "type")
	knownDesc    = desc("authentications_total", "Callers known, by their credential.", "kind")
	refusalsDesc = desc("refused_streams_total", "Streams not taken in, by reason.", "reason")
	endedDesc    = desc("ended_streams_total", "Streams that the server has ended, by reason.", "reason")
	sentDesc     = desc("push_seconds", "Time from a change until a stream was sent it.")
	ackedDesc    = desc("ack_seconds", "Time from a change until its client has acknowledged it.")
	heldDesc     = desc("certificate_held", "1 where what the server itself needs is held and valid.", "secret")
	startDesc    = desc("certificate_start_timestamp_seconds", "When the held secret began to be valid.", "secret")
	expiryDesc   = desc("certificate_expiry_timestamp_seconds", "When the held secret ends.", "secret")
	rootsDesc    = desc("trust_domain_roots", "Roots held of a trust domain.", "trust_domain")
	problemDesc  = desc("trust_domain_problem", "1 where the roots of a trust domain cannot be had anew.", "trust_domain")
	filesDesc    = desc("resource_files", "Files of the folder: served, kept (bad, its last good version is served), refused.", "state")
	folderDesc   = desc("resource_folder_problem", "1 where the folder of resources cannot be read.")
)

// collector is a collector of the service's present state.
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

// gatherer puts values where they are gathered.
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
