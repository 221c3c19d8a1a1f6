package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
)

// reported collects what the status page shows beside the secrets and providers.
type reported func() status.Report

var (
	behindDesc       = prometheus.NewDesc("countersign_output_behind", "1 while files cannot be written (write), or their program cannot be reloaded (reload).", []string{"output", "step"}, nil)
	outputExpiryDesc = prometheus.NewDesc("countersign_output_expiry_timestamp_seconds", "When the certificate in written files expires.", []string{"output"}, nil)
	restartDesc      = prometheus.NewDesc("countersign_restart_pending", "Changed settings, and a replaced binary, that wait for a restart of the agent.", nil, nil)
	stateLostDesc    = prometheus.NewDesc("countersign_state_behind", "1 while the state that is to survive a restart cannot be kept.", nil, nil)
	caStartDesc      = prometheus.NewDesc("countersign_ca_start_timestamp_seconds", "When the lifetime of the CA certificate above a secret that ends first began.", []string{"secret"}, nil)
	caExpiryDesc     = prometheus.NewDesc("countersign_ca_expiry_timestamp_seconds", "When the first CA certificate above a secret ends.", []string{"secret"}, nil)
)

// Describe implements [prometheus.Collector].
func (r reported) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{behindDesc, outputExpiryDesc, restartDesc, stateLostDesc, caStartDesc, caExpiryDesc} {
		to <- desc
	}
	jwtSVIDs.describe(to)
	to <- audiencesDesc
	witSVIDs.describe(to)
}

// Collect implements [prometheus.Collector].
func (r reported) Collect(to chan<- prometheus.Metric) {
	now := r()
	value := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	for _, o := range now.Outputs {
		value(behindDesc, number(o.Unwritten()), o.Name, "write")
		value(behindDesc, number(o.Untold()), o.Name, "reload")
		if !o.NotAfter.IsZero() {
			value(outputExpiryDesc, float64(o.NotAfter.Unix()), o.Name)
		}
	}
	value(restartDesc, float64(len(now.Restart)))
	value(stateLostDesc, number(now.State != nil && now.State.Failing != ""))
	for name, ca := range now.Ends {
		value(caStartDesc, float64(ca.NotBefore.Unix()), name)
		value(caExpiryDesc, float64(ca.NotAfter.Unix()), name)
	}
	if j := now.JWTSVIDs; j != nil {
		jwtSVIDs.collect(to, &j.Tokens)
		to <- prometheus.MustNewConstMetric(audiencesDesc, prometheus.CounterValue, float64(j.Refused), j.Provider)
	}
	if now.WITSVIDs != nil {
		witSVIDs.collect(to, now.WITSVIDs)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
