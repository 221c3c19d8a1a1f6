// Package metrics has the metrics of countersign-ra.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// Namespace begins the name of each metric.
const Namespace = "countersign_ra"

// Metrics counts outcomes; all other values are collected on each scrape. Labels come from
// the configuration, from kubeconfigs and from fixed lists, never from a caller.
type Metrics struct {
	Registry *prometheus.Registry

	outcomes *prometheus.CounterVec
	requests *prometheus.CounterVec
	waited   *prometheus.HistogramVec
	took     *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	called   prometheus.Histogram
}

// New returns the metrics without any that are collected, see [Metrics.Watch].
func New() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: Namespace, Name: "outcomes_total", Help: "Outcomes of the engine: issued, or why not.",
		}, []string{"authority", "rule", "result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: Namespace, Name: "requests_total", Help: "Kubernetes objects by what became of them; a pending one is counted each time.",
		}, []string{"cluster", "kind", "signer", "result"}),
		waited: histogram("queue_seconds", "Time in an authority's queue.", prometheus.ExponentialBuckets(0.01, 4, 10)),
		took:   histogram("call_seconds", "Time of an authority's call.", prometheus.ExponentialBuckets(0.005, 2, 14)),
	}
	m.calls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: Namespace, Name: "istio_calls_total", Help: "Calls of Istio's CA API by how they ended; an excess connection counts as one.",
	}, []string{"result"})
	m.called = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: Namespace, Name: "istio_call_seconds", Help: "Time of a call of Istio's CA API.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	})
	m.Registry.MustRegister(m.outcomes, m.requests, m.waited, m.took, m.calls, m.called,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: buckets}, []string{"authority"})
}

// Outcome receives the events of the engine.
func (m *Metrics) Outcome(e ra.Event) {
	m.outcomes.WithLabelValues(e.Authority, e.Rule, e.Result).Inc()
	if e.Took > 0 {
		m.waited.WithLabelValues(e.Authority).Observe(e.Waited.Seconds())
		m.took.WithLabelValues(e.Authority).Observe(e.Took.Seconds())
	}
}

// Request counts the outcomes of a kind of requests.
func (m *Metrics) Request(cluster, kind string) func(signing.Event) {
	return func(e signing.Event) { m.requests.WithLabelValues(cluster, kind, e.Signer, e.Result).Inc() }
}

// Serve adds the counters of rare calls of Istio's CA API: an alert sees the first one, too.
func (m *Metrics) Serve() {
	for _, rare := range []istioca.Result{istioca.Copied, istioca.Unrenewable} {
		m.calls.WithLabelValues(string(rare))
	}
}

// Called counts a call of Istio's CA API.
func (m *Metrics) Called(e istioca.Event) {
	m.calls.WithLabelValues(string(e.Result)).Inc()
	if e.Took > 0 {
		m.called.Observe(e.Took.Seconds())
	}
}

// Source has the current values. Its functions are called on each scrape.
type Source struct {
	Report func() status.Report
	// Left returns the places that no new root waits for, and Meshes what is written for a mesh, by
	// cluster ID. Only the leader has any.
	Left   func() []quorum.Place
	Meshes func() map[string]*status.Mesh
}

// Watch adds the values collected on each scrape.
func (m *Metrics) Watch(s Source) { m.Registry.MustRegister(collector{s}) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(Namespace+"_"+name, help, labels, nil)
}

var (
	readyDesc       = desc("ready", "1 if this replica signs, or would as soon as it has the Lease.")
	needDesc        = desc("dependency", "1 if this replica has what it needs to issue, by what that is.", "dependency")
	leaderDesc      = desc("leader", "1 if this replica holds the Lease, or needs none.")
	providerDesc    = desc("provider_ready", "1 if the provider's process is ready.", "provider")
	waitingDesc     = desc("queue_length", "Requests that wait for an authority.", "authority", "engine")
	ageDesc         = desc("queue_age_seconds", "How long the first of the requests that wait for an authority has waited.", "authority", "engine")
	shutDesc        = desc("signer_shut", "1 for a signer whose certificates cannot be written into requests, by scope (all or some owners).", "cluster", "signer", "kind", "owners")
	inFlightDesc    = desc("calls_in_flight", "Calls of an authority at present.", "authority", "engine")
	rateDesc        = desc("rate", "Calls a second that are allowed at present.", "authority", "engine")
	rateLimitDesc   = desc("rate_limit", "This engine's share of the calls a second that are configured.", "authority", "engine")
	heldDesc        = desc("held_seconds", "How long an authority will not be asked.", "authority", "engine")
	stoppedDesc     = desc("rule_stopped", "1 for a rule whose replies failed a check, so that one request at a time is sent.", "authority", "engine", "rule")
	rootsDesc       = desc("roots", "Roots of an authority, by phase.", "authority", "engine", "phase")
	unplannedDesc   = desc("roots_unplanned", "Roots used for signing before they were published.", "authority", "engine")
	rootExpiryDesc  = desc("root_first_expiry_timestamp_seconds", "When the first trusted root of an authority ends.", "authority", "engine")
	clusterDesc     = desc("cluster_ready", "1 if the requests of a cluster are followed.", "cluster")
	bundleDesc      = desc("trust_bundle_current", "1 if a ClusterTrustBundle has the roots of its authority, or of a foreign trust domain.", "cluster", "signer", "trust_domain")
	protectionDesc  = desc("pod_requests_protected", "1 if the admission policy lets nodes alone create PodCertificateRequests.", "cluster")
	dangerousDesc   = desc("dangerous_authorities", "Authorities disabled because a cluster trusts them for client authentication.", "cluster")
	rulesUnableDesc = desc("rules_unable", "1 if a rule's authority cannot serve it.")
	istioReadyDesc  = desc("istio_ready", "1 if this replica serves Istio's CA API.")
	renewalsDesc    = desc("renewal_record_usable", "1 if the record of machines that renew by their certificates can be used.")
	rootRecordDesc  = desc("root_record_usable", "1 if the record of an authority's roots can be used.", "authority", "engine")
	sharedDesc      = desc("quota_shared", "1 if the record by which engines share the authorities' quotas can be kept.", "engine")
	istioExpiryDesc = desc("istio_certificate_expiry_timestamp_seconds", "When the certificate of Istio's CA API ends.")
)

// collector collects the current values.
type collector struct{ Source }

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		readyDesc, needDesc, leaderDesc, providerDesc, waitingDesc, ageDesc, shutDesc, inFlightDesc, rateDesc, rateLimitDesc, heldDesc, stoppedDesc, rootsDesc, unplannedDesc,
		rootExpiryDesc, clusterDesc, bundleDesc, protectionDesc, dangerousDesc, rulesUnableDesc, istioReadyDesc, istioExpiryDesc, sharedDesc,
		renewalsDesc, rootRecordDesc, meshNamespacesDesc, meshLeftDesc, rootsLeftDesc, istiodCurrentDesc, istiodExpiryDesc,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	r := c.Report()
	gauge(readyDesc, number(r.NotReady == ""))
	for _, n := range r.Needs {
		gauge(needDesc, number(n.Error == ""), n.Name)
	}
	gauge(leaderDesc, number(r.Leader.Leading))
	for _, p := range r.Providers {
		gauge(providerDesc, number(p.State == "ready"), p.Name)
	}
	for _, a := range r.Authorities {
		gaugeAuthority("kubernetes", a, gauge)
	}
	gaugeIstio(r.Istio, gauge)
	for _, s := range r.Sharing {
		gauge(sharedDesc, number(s.Error == ""), s.Engine)
	}
	for _, k := range r.Clusters {
		gaugeCluster(k, gauge)
	}
	gauge(rulesUnableDesc, number(r.Unable != ""))
	for _, p := range c.Left() {
		gauge(rootsLeftDesc, 1, p.Authority, p.Cluster, string(p.By))
	}
	for cluster, m := range c.Meshes() {
		gaugeMesh(cluster, m, gauge)
	}
}

type gauge = func(d *prometheus.Desc, v float64, labels ...string)

func gaugeAuthority(engine string, a status.Authority, gauge gauge) {
	gauge(waitingDesc, float64(a.Waiting), a.Name, engine)
	gauge(ageDesc, a.OldestSeconds, a.Name, engine)
	gauge(inFlightDesc, float64(a.InFlight), a.Name, engine)
	gauge(rateDesc, a.Rate, a.Name, engine)
	gauge(rateLimitDesc, a.MostRate, a.Name, engine)
	gauge(heldDesc, a.HeldSeconds, a.Name, engine)
	gauge(rootRecordDesc, number(a.Record == ""), a.Name, engine)
	for _, s := range a.Stopped {
		gauge(stoppedDesc, 1, a.Name, engine, s.Rule)
	}
	phases, unplanned := map[string]int{"announced": 0, "waiting": 0, "trusted": 0, "withdrawn": 0}, 0
	for _, root := range a.Roots {
		phases[root.Phase]++
		if root.Unplanned {
			unplanned++
		}
	}
	for phase, n := range phases {
		gauge(rootsDesc, float64(n), a.Name, engine, phase)
	}
	gauge(unplannedDesc, float64(unplanned), a.Name, engine)
	if first := a.FirstExpiry(); !first.IsZero() {
		gauge(rootExpiryDesc, float64(first.Unix()), a.Name, engine)
	}
}

func gaugeCluster(k status.Cluster, gauge gauge) {
	gauge(clusterDesc, number(k.NotReady == ""), k.ID)
	gauge(dangerousDesc, float64(len(k.Dangerous)), k.ID)
	for _, b := range k.Bundles {
		gauge(bundleDesc, number(b.Error == ""), k.ID, b.Signer, b.TrustDomain)
	}
	type gate struct{ signer, kind, owners string }
	gates := map[gate]bool{} // several owners have one
	for _, s := range k.Shut {
		owners := "all"
		if len(s.Owners) > 0 {
			owners = "some"
		}
		gates[gate{s.Signer, s.Requests, owners}] = true
	}
	for g := range gates {
		gauge(shutDesc, 1, k.ID, g.signer, g.kind, g.owners)
	}
	if k.Protection != nil {
		gauge(protectionDesc, number(k.Protection.State == "protected"), k.ID)
	}
}

func gaugeIstio(r *status.Istio, gauge gauge) {
	if r == nil {
		return
	}
	gauge(istioReadyDesc, number(r.NotReady == ""))
	if end := r.Certificate.NotAfter; !end.IsZero() {
		gauge(istioExpiryDesc, float64(end.Unix()))
	}
	if r.Renewals != nil {
		gauge(renewalsDesc, number(r.Renewals.Error == ""))
	}
	for _, a := range r.Authorities {
		gaugeAuthority("istio", a, gauge)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
