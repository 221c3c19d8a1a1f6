package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
)

// tokens are the metrics of one kind of tokens that a provider signs.
type tokens struct{ signed, failures, held, keys, keysAt, behind *prometheus.Desc }

var (
	jwtSVIDs      = newTokens("countersign_jwt_svid_", "JWT-SVID")
	witSVIDs      = newTokens("countersign_wit_svid_", "WIT-SVID")
	audiencesDesc = prometheus.NewDesc("countersign_jwt_svid_refused_audiences_total", "Requests by workloads for a JWT-SVID with an audience that is not allowed.", []string{"provider"}, nil)
)

func newTokens(prefix, kind string) tokens {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, append([]string{"provider"}, more...), nil)
	}
	return tokens{
		signed:   desc("signed_total", kind+"s that a provider signed and that passed the checks."),
		failures: desc("failures_total", "Failed requests for a "+kind+" to a provider.", "reason"),
		held:     desc("held", kind+"s that are held and valid."),
		keys:     desc("keys", "Published keys of "+kind+"s."),
		keysAt:   desc("keys_timestamp_seconds", "When a provider last sent its keys of "+kind+"s."),
		behind:   desc("keys_behind", "1 while changes of a provider's keys of "+kind+"s are not known."),
	}
}

func (t tokens) describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{t.signed, t.failures, t.held, t.keys, t.keysAt, t.behind} {
		to <- desc
	}
}

func (t tokens) collect(to chan<- prometheus.Metric, now *status.Tokens) {
	put := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64, reason ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, v, append([]string{now.Provider}, reason...)...)
	}
	put(t.signed, prometheus.CounterValue, float64(now.Signed))
	for reason, n := range now.Failures {
		put(t.failures, prometheus.CounterValue, float64(n), reason)
	}
	put(t.held, prometheus.GaugeValue, float64(now.Held))
	put(t.keys, prometheus.GaugeValue, float64(len(now.Keys)))
	if !now.KeysAt.IsZero() {
		put(t.keysAt, prometheus.GaugeValue, float64(now.KeysAt.Unix()))
	}
	put(t.behind, prometheus.GaugeValue, number(now.KeysFailure != nil))
}
