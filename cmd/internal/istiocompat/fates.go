package istiocompat

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// Fate is what becomes of a variable of Istio's agent.
type Fate string

// The fates.
const (
	Taken     Fate = "taken"
	NotNeeded Fate = "not needed"
	NotThere  Fate = "not there"
)

// Variable is one that Istio's agent reads, now or in an earlier version, or a field of its
// PROXY_CONFIG. <name> at the end of a variable stands for any text.
type Variable struct {
	Name string
	Fate Fate
	Note string // which setting it is, or what to do instead
	// Usual are values that ask for nothing.
	Usual []string
	// Injected ones are set in each pod, by Istio's injector or by Kubernetes; they cause no
	// warning.
	Injected bool
}

// Variables lists those of Istio's agent in the order of docs/from-istio-agent.md.
func Variables() []Variable { return slices.Clone(variables) }

var off = []string{"false", "0", ""}

var variables = []Variable{
	{Name: "CA_ADDR", Fate: Taken, Note: "the CA's address; without it, istiod's: `discoveryAddress` of `PROXY_CONFIG`, or the usual one"},
	{Name: "CA_PROVIDER", Fate: Taken, Note: "the provider"},
	{Name: "CA_ROOT_CA", Fate: Taken, Note: "`root_file` of the provider `citadel`"},
	{Name: "CA_HEADER_<name>", Fate: Taken, Note: "`headers` of the provider `citadel`"},
	{Name: "CREDENTIAL_FETCHER_TYPE", Fate: Taken, Note: "`token` of the provider"},
	{Name: "ECC_CURVE", Fate: Taken, Note: "`key_type`"},
	{Name: "ECC_SIGNATURE_ALGORITHM", Fate: Taken, Note: "`key_type`"},
	{Name: "ENABLE_INGRESS_GATEWAY_SDS", Fate: Taken, Note: "`gateway.enabled`; of the earlier node agent"},
	{Name: "ENABLE_WORKLOAD_SDS", Fate: Taken, Note: "`socket.enabled`; of the earlier node agent"},
	{Name: "ENVOY_PROMETHEUS_PORT", Fate: Taken, Note: "`status.metrics_from`, with ISTIO_PROMETHEUS_ANNOTATIONS"},
	{Name: "ENVOY_STATUS_PORT", Fate: Taken, Note: "`status.probes`; the agent answers there itself"},
	{Name: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", Fate: Taken, Note: "`proxy.drain.when_idle`"},
	{Name: "FILE_DEBOUNCE_DURATION", Fate: Taken, Note: "`files.debounce`"},
	{Name: "FILE_MOUNTED_CERTS", Fate: Taken, Note: "`files.mounted: only`"},
	{Name: "GKE_CLUSTER_URL", Fate: Taken, Note: "`location` of the provider `google`"},
	{Name: "ISTIOD_SAN", Fate: Taken, Note: "`server_name` of the provider `citadel`"},
	{Name: "ISTIO_META_CERT_SIGNER", Fate: Taken, Note: "`cert_signer` of the provider `citadel`"},
	{Name: "ISTIO_META_CLUSTER_ID", Fate: Taken, Note: "`cluster_id` of the provider `citadel`"},
	{Name: "ISTIO_PROMETHEUS_ANNOTATIONS", Fate: Taken, Note: "`status.metrics: ':15020'` and `status.metrics_from`"},
	{Name: "JWT_POLICY", Fate: Taken, Note: "`token.file` of the provider `citadel`"},
	{Name: "METRICS_LOCALHOST_ACCESS_ONLY", Fate: Taken, Note: "`status.metrics` on 127.0.0.1, with ISTIO_PROMETHEUS_ANNOTATIONS"},
	{Name: "MINIMUM_DRAIN_DURATION", Fate: Taken, Note: "`proxy.drain.min_time`"},
	{Name: "OUTPUT_CERTS", Fate: Taken, Note: "the output `istio`"},
	{Name: "PILOT_CERT_PROVIDER", Fate: Taken, Note: "`root_file` of the provider `citadel`"},
	{Name: "PKCS8_KEY", Fate: Taken, Note: "keys are always PKCS #8"},
	{Name: "POD_NAMESPACE", Fate: Taken, Note: "`namespace`"},
	{Name: "PROV_CERT", Fate: Taken, Note: "`client_cert_file` and `client_key_file` of the provider `citadel`"},
	{Name: "PROXY_CONFIG", Fate: Taken, Note: "field by field, see [below](#fields-of-proxy_config)"},
	{Name: "SECRET_GRACE_PERIOD_RATIO", Fate: Taken, Note: "`rotation.ratio`"},
	{Name: "SECRET_GRACE_PERIOD_RATIO_JITTER", Fate: Taken, Note: "`rotation.jitter`"},
	{Name: "SECRET_TTL", Fate: Taken, Note: "`ttl`"},
	{Name: "SERVICE_ACCOUNT", Fate: Taken, Note: "`service_account`"},
	{Name: "TERMINATION_DRAIN_DURATION_SECONDS", Fate: Taken, Note: "`proxy.drain.time`, with Envoy's admin address of a mesh, 127.0.0.1:15000"},
	{Name: "TRUST_DOMAIN", Fate: Taken, Note: "`trust_domain`"},
	{Name: "WORKLOAD_IDENTITY_SOCKET_FILE", Fate: Taken, Note: "`socket.path`"},
	{Name: "WORKLOAD_RSA_KEY_SIZE", Fate: Taken, Note: "`key_type`"},

	{Name: "GRPC_XDS_BOOTSTRAP", Fate: NotNeeded, Note: "gRPC reads it itself; the agent writes no such file"},
	{Name: "HOST_IP", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "INITIAL_BACKOFF_MSEC", Fate: NotNeeded, Note: "the backoff follows what the CA answers; of an earlier agent"},
	{Name: "INSTANCE_IP", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_CPU_LIMIT", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_APP_CONTAINERS", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_INTERCEPTION_MODE", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_MESH_ID", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_NETWORK", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_NODE_NAME", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_OWNER", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_POD_PORTS", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "ISTIO_META_WORKLOAD_NAME", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "POD_NAME", Fate: NotNeeded, Note: "set by the injector", Injected: true},
	{Name: "SDS_ENABLED", Fate: NotNeeded, Note: "SDS is always on; of an earlier agent", Usual: []string{"true"}},
	{Name: "SECRET_GRACE_DURATION", Fate: NotNeeded, Note: "set `rotation.ratio`; of an earlier agent"},
	{Name: "SECRET_JOB_RUN_INTERVAL", Fate: NotNeeded, Note: "rotation needs no interval; of an earlier agent"},
	{Name: "STALED_CONNECTION_RECYCLE_RUN_INTERVAL", Fate: NotNeeded, Note: "connections need no sweeping; of an earlier agent"},
	{Name: "USE_EXTERNAL_WORKLOAD_SDS", Fate: NotNeeded, Note: "another program's socket is found by itself; set `socket.foreign_uids`. Of agents before 1.21", Usual: off},

	{Name: "BOOTSTRAP_XDS_AGENT", Fate: NotThere, Note: "name Envoy's configuration after `--`; of an earlier agent", Usual: off},
	{Name: "CA_CRL", Fate: NotThere, Note: "no variable names a CRL"},
	{Name: "CLOUD_PLATFORM", Fate: NotThere, Note: "write the node's locality and metadata in Envoy's configuration", Usual: []string{"none"}},
	{Name: "COMPLIANCE_POLICY", Fate: NotThere, Note: "write TLS parameters in Envoy's configuration, and build the agent with `FIPS=1`"},
	{Name: "CREDENTIAL_IDENTITY_PROVIDER", Fate: NotThere, Note: "write the audience in `token.exchange` of the provider", Usual: []string{"GoogleComputeEngine"}},
	{Name: "DISABLE_ENVOY", Fate: NotThere, Note: "the agent starts only the proxy that you name", Usual: off},
	{Name: "DNS_FORWARD_PARALLEL", Fate: NotThere, Note: "the agent serves no DNS", Usual: off},
	{Name: "DNS_FORWARD_TIMEOUT", Fate: NotThere, Note: "the agent serves no DNS"},
	{Name: "DNS_PROXY_ADDR", Fate: NotThere, Note: "the agent serves no DNS"},
	{Name: "ENABLE_PROBE_KEEPALIVE_CONNECTIONS", Fate: NotThere, Note: "the agent passes no probes on", Usual: off},
	{Name: "ENVOY_SECURE_MERGED_METRICS_PORT", Fate: NotThere, Note: "set `status.metrics_secret` and `status.metrics_client_roots`", Usual: off},
	{Name: "ENVOY_SECURE_METRICS_PORT", Fate: NotThere, Note: "set `status.metrics_secret` and `status.metrics_client_roots`, and Envoy's metrics in `status.metrics_from`", Usual: off},
	{Name: "ENVOY_SKIP_DEPRECATED_LOGS", Fate: NotThere, Note: "write Envoy's flag after `--`"},
	{Name: "ENVOY_USER", Fate: NotThere, Note: "the proxy runs as the agent's user"},
	{Name: "GCP_METADATA", Fate: NotThere, Note: "write the node's locality and metadata in Envoy's configuration"},
	{Name: "GCP_QUOTA_PROJECT", Fate: NotThere, Note: "write the node's metadata in Envoy's configuration"},
	{Name: "GCP_ZONE", Fate: NotThere, Note: "write the node's locality in Envoy's configuration"},
	{Name: "GRPC_KEEPALIVE_INTERVAL", Fate: NotThere, Note: "the provider chooses it"},
	{Name: "GRPC_KEEPALIVE_TIMEOUT", Fate: NotThere, Note: "the provider chooses it"},
	{Name: "HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED", Fate: NotThere, Note: "write it in Envoy's configuration", Usual: []string{"true", "1"}},
	{Name: "ISTIO_BOOTSTRAP", Fate: NotThere, Note: "name Envoy's configuration after `--`"},
	{Name: "ISTIO_BOOTSTRAP_OVERRIDE", Fate: NotThere, Note: "name Envoy's configuration after `--`"},
	{Name: "ISTIO_DELTA_XDS", Fate: NotThere, Note: "Envoy connects to its discovery service itself; of an earlier agent"},
	{Name: "ISTIO_DUAL_STACK", Fate: NotThere, Note: "write both addresses in Envoy's configuration; of an earlier agent", Usual: off},
	{Name: "ISTIO_ENABLE_HTTP2_PROBING", Fate: NotThere, Note: "the agent passes no probes on"},
	{Name: "ISTIO_ENVOY_ENABLE_CORE_DUMP", Fate: NotThere, Note: "write Envoy's flag after `--`", Usual: off},
	{Name: "ISTIO_KUBE_APP_PROBERS", Fate: NotThere, Note: "the agent passes no probes on: there is no `/app-health`. Annotate the pod with `sidecar.istio.io/rewriteAppHTTPProbers: \"false\"`", Usual: []string{"{}"}},
	{Name: "ISTIO_METAJSON_<name>", Fate: NotThere, Note: "write node metadata in Envoy's configuration"},
	{Name: "ISTIO_META_DNS_CAPTURE", Fate: NotThere, Note: "the agent serves no DNS", Usual: off},
	{Name: "ISTIO_META_ENABLE_DNS_SERVER", Fate: NotThere, Note: "the agent serves no DNS", Usual: off},
	{Name: "ISTIO_META_TLS_CLIENT_CERT_CHAIN", Fate: NotThere, Note: "name the files in `files.secrets`"},
	{Name: "ISTIO_META_TLS_CLIENT_KEY", Fate: NotThere, Note: "name the files in `files.secrets`"},
	{Name: "ISTIO_META_TLS_CLIENT_ROOT_CERT", Fate: NotThere, Note: "name the files in `files.secrets`"},
	{Name: "ISTIO_META_<name>", Fate: NotThere, Note: "write node metadata in Envoy's configuration"},
	{Name: "PEER_METADATA_DISCOVERY", Fate: NotThere, Note: "write it in Envoy's configuration", Usual: off},
	{Name: "PLUGINS", Fate: NotThere, Note: "set `token.exchange` of the provider; of an earlier agent"},
	{Name: "PROXY_CONFIG_XDS_AGENT", Fate: NotThere, Note: "Envoy connects to its discovery service itself", Usual: off},
	{Name: "PROXY_XDS_DEBUG_VIA_AGENT", Fate: NotThere, Note: "there is no `/debug`; of an earlier agent", Usual: off},
	{Name: "PROXY_XDS_DEBUG_VIA_AGENT_PORT", Fate: NotThere, Note: "there is no `/debug`; of an earlier agent"},
	{Name: "PROXY_XDS_VIA_AGENT", Fate: NotThere, Note: "Envoy connects to its discovery service itself; of an earlier agent", Usual: off},
	{Name: "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", Fate: NotThere, Note: "the agent passes no probes on", Usual: off},
	{Name: "SDS_UDS_PATH", Fate: NotThere, Note: "set `socket.path`; of an earlier agent"},
	{Name: "STS_PORT", Fate: NotThere, Note: "the agent serves no tokens", Usual: off},
	{Name: "WASM_<name>", Fate: NotThere, Note: "the agent fetches no Wasm modules"},
	{Name: "XDS_AUTH_PROVIDER", Fate: NotThere, Note: "Envoy connects to its discovery service itself"},
	{Name: "XDS_HEADER_<name>", Fate: NotThere, Note: "Envoy connects to its discovery service itself"},
	{Name: "XDS_ROOT_CA", Fate: NotThere, Note: "write the root in Envoy's configuration; for a gateway's secrets, set `gateway.root_file`"},
}

// fateOf finds a variable: by its name, else by the longest beginning.
func fateOf(name string) (found Variable, known bool) {
	for _, v := range variables {
		beginning, open := strings.CutSuffix(v.Name, "<name>")
		if v.Name == name {
			return v, true
		}
		if open && strings.HasPrefix(name, beginning) && len(v.Name) > len(found.Name) {
			found, known = v, true
		}
	}
	return found, known
}

// passedOver names in one warning the variables and fields without effect that have none of
// their own.
func (t *translator) passedOver() {
	names := t.config.ignoredFields()
	for name, value := range t.set {
		v, known := fateOf(name)
		if known && v.Fate != Taken && !v.Injected && withoutEffect[name] == "" && !v.usual(value) {
			names = append(names, text.Clean(name)+" ("+string(v.Fate)+")")
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		t.warn("variables of Istio's agent without effect: %s; see docs/from-istio-agent.md", strings.Join(names, ", "))
	}
}
