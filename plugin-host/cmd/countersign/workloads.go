package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/signers"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/crowd"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// manyIdentities gives each stream a "default" of its own, instead of the one of all.
func manyIdentities(cfg *agent.Config, w config.Workloads, book *signers.Book) error {
	spec := cfg.Secrets[0] // it is the first
	cfg.Secrets = cfg.Secrets[1:]
	peers := map[uint32]string{}
	for _, peer := range w.Peers {
		peers[peer.UID] = peer.SPIFFEID
		cfg.Socket.Policy.UIDs = append(cfg.Socket.Policy.UIDs, peer.UID)
	}
	cfg.Crowd = &crowd.Config{
		Certificate: spec, Bundles: bundlesOf(cfg.Secrets), Idle: w.IdleTime.Duration,
		Limits: crowd.Limits{
			Identities: int(w.Limits.Identities), Streams: int(w.Limits.Streams), InFlight: int(w.Limits.Requests),
			Refused: int(w.Limits.RefusedTokens),
		},
		Identify: crowd.Identify{Peer: func(peer secret.Caller) (string, bool) {
			id, ok := peers[peer.UID]
			return id, ok
		}},
	}
	if len(spec.Authorities) > 0 {
		cfg.Crowd.Exchange = streamTokensOf(book, spec.Authorities[0]).exchange()
	}
	cfg.Socket.TokenHeaders, cfg.Socket.Recycle = w.TokenHeaders, w.RecycleTime.Duration
	cfg.Socket.Limits = xds.Limits{MaxNames: int(w.Limits.Names)}
	if w.VerifiedBy == "" {
		return nil
	}
	return identifyBy(&cfg.Crowd.Identify, w, cfg.Log)
}

// bundlesOf returns the names of what all may have: ROOTCA, which is the first, and
// further trust bundles.
func bundlesOf(specs []secret.Spec) []string {
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = spec.Name
	}
	return names
}

// workloads is a collector of the numbers of an agent of many identities. None has the
// name of an identity: they come from clients.
type workloads struct{ agent *agent.Agent }

var (
	identitiesDesc = prometheus.NewDesc("countersign_workload_identities",
		"Verified identities by what is held for them: held, missing, expired or idle; and unverified tokens.", []string{"state"}, nil)
	workloadRequestsDesc = prometheus.NewDesc("countersign_workload_requests",
		"Requests for certificates of workloads: in-flight, and waiting for their turn.", []string{"state"}, nil)
	workloadEventsDesc = prometheus.NewDesc("countersign_workload_events_total",
		"What happened to identities and their streams: requested, rotated, joined, failed, refused, ended, released, turned-away, over-limit.", []string{"event"}, nil)
	workloadExpiryDesc = prometheus.NewDesc("countersign_workload_expiry_timestamp_seconds", "When the first of the held certificates ends.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (w *workloads) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{identitiesDesc, workloadRequestsDesc, workloadEventsDesc, workloadExpiryDesc} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (w *workloads) Collect(to chan<- prometheus.Metric) {
	n, many := w.agent.Crowd()
	if !many {
		return
	}
	values := func(desc *prometheus.Desc, kind prometheus.ValueType, of map[string]int) {
		for label, value := range of {
			to <- prometheus.MustNewConstMetric(desc, kind, float64(value), label)
		}
	}
	values(identitiesDesc, prometheus.GaugeValue, map[string]int{
		"held": n.Held, "missing": n.Missing, "expired": n.Expired, "idle": n.Idle, "unverified": n.Unverified,
	})
	values(workloadRequestsDesc, prometheus.GaugeValue, map[string]int{"in-flight": n.InFlight, "waiting": n.Waiting})
	values(workloadEventsDesc, prometheus.CounterValue, map[string]int{
		"requested": n.Requests, "rotated": n.Rotations, "joined": n.Joins, "failed": n.Failures, "refused": n.Refused,
		"ended": n.Ended, "released": n.Released, "turned-away": n.TurnedAway, "over-limit": n.OverLimit,
	})
	if !n.NextExpiry.IsZero() {
		to <- prometheus.MustNewConstMetric(workloadExpiryDesc, prometheus.GaugeValue, float64(n.NextExpiry.Unix()))
	}
}
