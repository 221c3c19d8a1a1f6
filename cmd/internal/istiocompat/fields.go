package istiocompat

import (
	"slices"
	"strings"
)

// Fields lists those of PROXY_CONFIG, Istio's ProxyConfig, in the order of
// docs/from-istio-agent.md.
func Fields() []Variable { return slices.Clone(fields) }

const (
	inEnvoy   = "write it in Envoy's configuration"
	afterDash = "name Envoy's configuration after `--`"
	ofFlags   = "write Envoy's flag after `--`"
)

var fields = []Variable{
	{Name: "discoveryAddress", Fate: Taken, Note: "the CA's address without `CA_ADDR`, and `gateway.address`; Envoy's connection to its discovery service is in its own configuration", Usual: []string{Istiod}},
	{Name: "drainDuration", Fate: Taken, Note: "`proxy.reload.drain_time` with `proxy.reload.hot_restart`; without, write Envoy's `--drain-time-s` after `--`", Usual: []string{"45s"}},
	{Name: "proxyAdminPort", Fate: Taken, Note: "the port in `proxy.drain.admin`, if there is a drain", Usual: []string{"15000"}},
	{Name: "proxyMetadata", Fate: Taken, Note: "each entry is read as the variable of that name, unless the environment has it. `CA_HEADER_<name>` is not: set the variable"},
	{Name: "statusPort", Fate: Taken, Note: "the port in `status.metrics`, with `ISTIO_PROMETHEUS_ANNOTATIONS`", Usual: []string{agentPort}},
	{Name: "terminationDrainDuration", Fate: Taken, Note: "`proxy.drain.time`, without `TERMINATION_DRAIN_DURATION_SECONDS`", Usual: []string{"5s"}},

	{Name: "controlPlaneAuthPolicy", Fate: NotNeeded, Note: "the address decides: port 15010 is plaintext", Usual: []string{"mutual_tls"}},
	{Name: "image", Fate: NotNeeded, Note: "read by the injector"},
	{Name: "interceptionMode", Fate: NotNeeded, Note: "read by the injector", Usual: []string{"redirect"}},
	{Name: "sds", Fate: NotNeeded, Note: "SDS is always on; of an earlier agent"},

	{Name: "availabilityZone", Fate: NotThere, Note: "set `proxy.locality`; of an earlier agent"},
	{Name: "binaryPath", Fate: NotThere, Note: "name Envoy after `--`", Usual: []string{"/usr/local/bin/envoy"}},
	{Name: "caCertificatesPem", Fate: NotThere, Note: "name the CAs in `secrets`, as `providers` of `ROOTCA`"},
	{Name: "concurrency", Fate: NotThere, Note: ofFlags},
	{Name: "configPath", Fate: NotThere, Note: afterDash, Usual: []string{"./etc/istio/proxy"}},
	{Name: "connectTimeout", Fate: NotThere, Note: inEnvoy + "; of an earlier agent"},
	{Name: "connectionSettings", Fate: NotThere, Note: inEnvoy},
	{Name: "customConfigFile", Fate: NotThere, Note: afterDash},
	{Name: "discoveryRefreshDelay", Fate: NotThere, Note: inEnvoy + "; of an earlier agent"},
	{Name: "envoyAccessLogService", Fate: NotThere, Note: inEnvoy},
	{Name: "envoyMetricsService", Fate: NotThere, Note: inEnvoy},
	{Name: "envoyMetricsServiceAddress", Fate: NotThere, Note: inEnvoy + "; of an earlier agent"},
	{Name: "extraStatTags", Fate: NotThere, Note: inEnvoy},
	{Name: "fileFlushInterval", Fate: NotThere, Note: ofFlags},
	{Name: "fileFlushMinSizeKb", Fate: NotThere, Note: ofFlags},
	{Name: "gatewayTopology", Fate: NotThere, Note: inEnvoy},
	{Name: "holdApplicationUntilProxyStarts", Fate: NotThere, Note: "run the agent as a sidecar container with a startup probe on `status.probes`"},
	{Name: "meshId", Fate: NotThere, Note: "write node metadata in Envoy's configuration"},
	{Name: "parentShutdownDuration", Fate: NotThere, Note: "set `proxy.reload.drain_time`; of an earlier agent", Usual: []string{"60s"}},
	{Name: "privateKeyProvider", Fate: NotThere, Note: "Envoy is sent the key itself"},
	{Name: "proxyBootstrapTemplatePath", Fate: NotThere, Note: afterDash},
	{Name: "proxyHeaders", Fate: NotThere, Note: inEnvoy},
	{Name: "proxyStatsMatcher", Fate: NotThere, Note: inEnvoy},
	{Name: "readinessProbe", Fate: NotThere, Note: "the agent passes no probes on"},
	{Name: "runtimeValues", Fate: NotThere, Note: inEnvoy},
	{Name: "serviceCluster", Fate: NotThere, Note: "write `node.cluster` in Envoy's configuration", Usual: []string{"istio-proxy"}},
	{Name: "statNameLength", Fate: NotThere, Note: inEnvoy, Usual: []string{"189"}},
	{Name: "statsCompression", Fate: NotThere, Note: inEnvoy},
	{Name: "statsdUdpAddress", Fate: NotThere, Note: inEnvoy},
	{Name: "tracing", Fate: NotThere, Note: inEnvoy + "; the agent's own traces are set by `OTEL_…`"},
	{Name: "tracingServiceName", Fate: NotThere, Note: inEnvoy},
	{Name: "zipkinAddress", Fate: NotThere, Note: inEnvoy + "; of an earlier agent"},
}

// usual reports whether a value asks for nothing.
func (v Variable) usual(value string) bool {
	value = strings.TrimSpace(value)
	return slices.Contains(v.Usual, value) || slices.Contains(v.Usual, strings.ToLower(value))
}
