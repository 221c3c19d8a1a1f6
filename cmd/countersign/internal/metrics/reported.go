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
	jwtSignedDesc    = prometheus.NewDesc("countersign_jwt_svid_signed_total", "JWT-SVIDs that a provider signed and that passed the checks.", []string{"provider"}, nil)
	jwtFailuresDesc  = prometheus.NewDesc("countersign_jwt_svid_failures_total", "Failed requests for a JWT-SVID to a provider.", []string{"provider", "reason"}, nil)
	jwtRefusedDesc   = prometheus.NewDesc("countersign_jwt_svid_refused_audiences_total", "Requests by workloads for a JWT-SVID with an audience that is not allowed.", []string{"provider"}, nil)
	jwtHeldDesc      = prometheus.NewDesc("countersign_jwt_svid_held", "JWT-SVIDs that are held and valid.", []string{"provider"}, nil)
	jwtKeysDesc      = prometheus.NewDesc("countersign_jwt_svid_keys", "Published keys of JWT-SVIDs.", []string{"provider"}, nil)
	jwtKeysAtDesc    = prometheus.NewDesc("countersign_jwt_svid_keys_timestamp_seconds", "When a provider last sent its keys of JWT-SVIDs.", []string{"provider"}, nil)
	jwtBehindDesc    = prometheus.NewDesc("countersign_jwt_svid_keys_behind", "1 while changes of a provider's keys of JWT-SVIDs are not known.", []string{"provider"}, nil)
	caExpiryDesc     = prometheus.NewDesc("countersign_ca_expiry_timestamp_seconds", "When the first CA certificate above a secret ends.", []string{"secret"}, nil)
)

// Describe implements [prometheus.Collector].
func (r reported) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{behindDesc, outputExpiryDesc, restartDesc, stateLostDesc, caStartDesc, caExpiryDesc,
		jwtSignedDesc, jwtFailuresDesc, jwtRefusedDesc, jwtHeldDesc, jwtKeysDesc, jwtKeysAtDesc, jwtBehindDesc} {
		to <- desc
	}
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
	if now.JWTSVIDs != nil {
		collectJWTSVIDs(to, now.JWTSVIDs)
	}
}

func collectJWTSVIDs(to chan<- prometheus.Metric, j *status.JWTSVIDs) {
	put := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64, reason ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, v, append([]string{j.Provider}, reason...)...)
	}
	put(jwtSignedDesc, prometheus.CounterValue, float64(j.Signed))
	for reason, n := range j.Failures {
		put(jwtFailuresDesc, prometheus.CounterValue, float64(n), reason)
	}
	put(jwtRefusedDesc, prometheus.CounterValue, float64(j.Refused))
	put(jwtHeldDesc, prometheus.GaugeValue, float64(j.Held))
	put(jwtKeysDesc, prometheus.GaugeValue, float64(len(j.Keys)))
	if !j.KeysAt.IsZero() {
		put(jwtKeysAtDesc, prometheus.GaugeValue, float64(j.KeysAt.Unix()))
	}
	put(jwtBehindDesc, prometheus.GaugeValue, number(j.KeysFailure != nil))
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
