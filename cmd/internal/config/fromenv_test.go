package config

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestFileFromVariablesIsEquivalent(t *testing.T) {
	for _, environ := range [][]string{
		{"CA_ADDR=istiod.mesh.svc:15012", "TRUST_DOMAIN=example.org", "POD_NAMESPACE=1", "SERVICE_ACCOUNT=web", "SECRET_TTL=2h", "SECRET_GRACE_PERIOD_RATIO=0.25",
			"ECC_CURVE=P384", "ISTIO_META_CLUSTER_ID=1", "PROV_CERT=/p", "OUTPUT_CERTS=/out", "JWT_POLICY=first-party-jwt", "PILOT_CERT_PROVIDER=kubernetes"},
		{"CA_PROVIDER=GoogleCAS", "CA_ADDR=projects/p/locations/l/caPools/n", "POD_NAMESPACE=a", "SERVICE_ACCOUNT=b"},
		{"FILE_MOUNTED_CERTS=true", "ENABLE_INGRESS_GATEWAY_SDS=true", "WORKLOAD_IDENTITY_SOCKET_FILE=sds"},
		{"CA_ADDR=istiod.mesh.svc:15012", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", `ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","port":"8080"}`, "ENVOY_STATUS_PORT=15021"},
		{"TERMINATION_DRAIN_DURATION_SECONDS=30", "MINIMUM_DRAIN_DURATION=3s"},
		{`PROXY_CONFIG={"discoveryAddress":"istiod-canary.mesh.svc:15012","terminationDrainDuration":"90s","proxyAdminPort":15001,"proxyMetadata":{"SECRET_TTL":"3h","TRUST_DOMAIN":"example.net"}}`},
	} {
		file, _, err := FromIstio(environ)
		if err != nil {
			t.Errorf("%q: %v", environ, err)
			continue
		}
		command := []string{"envoy"}
		byVariables, _, err := Read(Input{Environ: environ, Command: command})
		if err != nil {
			t.Fatal(err)
		}
		byFile, _, err := Read(Input{FileName: "c.yaml", File: file, Command: command})
		if err != nil {
			t.Errorf("%q: %v\n%s", environ, err, file)
			continue
		}
		if got, want := valuesOf(byFile), valuesOf(byVariables); !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v\n%s", environ, got, want, file)
		}
	}
}

// valuesOf returns the settings as text.
func valuesOf(c Config) map[string]string {
	all := map[string]string{}
	for _, e := range c.explain(true) {
		all[e.Setting] = strings.TrimSpace(written(e.Value))
	}
	return all
}

func TestFileFromVariablesHasNoCredential(t *testing.T) {
	const secret = "value-that-is-secret"
	file, warnings, err := FromIstio([]string{"CA_HEADER_x-key=" + secret, "XDS_HEADER_x-key=" + secret, "PROXY_CONFIG={tracing: {}}"})
	if err != nil || strings.Contains(string(file)+strings.Join(warnings, ""), secret) || !strings.Contains(string(file), "env: CA_HEADER_x-key") {
		t.Errorf("%v, %q\n%s", err, warnings, file)
	}
}

func TestOneWarningNamesVariablesWithoutEffect(t *testing.T) {
	for _, test := range []struct {
		environ []string
		want    string
	}{
		{[]string{"PROXY_CONFIG={}", "USE_EXTERNAL_WORKLOAD_SDS=false", "POD_NAME=web-1", "ISTIO_META_WORKLOAD_NAME=web", "CREDENTIAL_IDENTITY_PROVIDER=GoogleComputeEngine", "XDS_ROOT_CA="}, ""},
		{
			[]string{"PROXY_CONFIG={concurrency: 2}", "USE_EXTERNAL_WORKLOAD_SDS=true", "CREDENTIAL_IDENTITY_PROVIDER=x", "PLUGINS=GoogleTokenExchange", "CA_CRL=c", "XDS_ROOT_CA=SYSTEM", "ISTIO_META_X=y", "WASM_PURGE_INTERVAL=1h", "ISTIO_METAJSON_L={}"},
			"variables of Istio's agent without effect: CA_CRL (not there), CREDENTIAL_IDENTITY_PROVIDER (not there), ISTIO_METAJSON_L (not there), ISTIO_META_X (not there), PLUGINS (not there), " +
				"PROXY_CONFIG.concurrency (not there), USE_EXTERNAL_WORKLOAD_SDS (not needed), WASM_PURGE_INTERVAL (not there), XDS_ROOT_CA (not there); see docs/from-istio-agent.md",
		},
		{[]string{"BOOTSTRAP_XDS_AGENT=false", "PROXY_XDS_DEBUG_VIA_AGENT=false", "ENVOY_SECURE_METRICS_PORT=0", "ISTIO_DUAL_STACK=false", "METRICS_LOCALHOST_ACCESS_ONLY=false"}, ""},
		{
			[]string{
				"BOOTSTRAP_XDS_AGENT=true", "CLOUD_PLATFORM=gcp", "COMPLIANCE_POLICY=fips-140-3", "DNS_FORWARD_TIMEOUT=1s", "ENVOY_SECURE_MERGED_METRICS_PORT=15094", "ENVOY_SECURE_METRICS_PORT=15093",
				"GCP_METADATA=a|b|c|d", "GCP_QUOTA_PROJECT=q", "GCP_ZONE=z", "GRPC_KEEPALIVE_INTERVAL=1s", "GRPC_KEEPALIVE_TIMEOUT=1s", "HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED=false",
				"ISTIO_DELTA_XDS=true", "ISTIO_DUAL_STACK=true", "ISTIO_ENVOY_ENABLE_CORE_DUMP=true", "PROXY_XDS_DEBUG_VIA_AGENT=true", "PROXY_XDS_DEBUG_VIA_AGENT_PORT=15004",
			},
			"variables of Istio's agent without effect: BOOTSTRAP_XDS_AGENT (not there), CLOUD_PLATFORM (not there), COMPLIANCE_POLICY (not there), DNS_FORWARD_TIMEOUT (not there), " +
				"ENVOY_SECURE_MERGED_METRICS_PORT (not there), ENVOY_SECURE_METRICS_PORT (not there), GCP_METADATA (not there), GCP_QUOTA_PROJECT (not there), GCP_ZONE (not there), " +
				"GRPC_KEEPALIVE_INTERVAL (not there), GRPC_KEEPALIVE_TIMEOUT (not there), HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED (not there), ISTIO_DELTA_XDS (not there), " +
				"ISTIO_DUAL_STACK (not there), ISTIO_ENVOY_ENABLE_CORE_DUMP (not there), PROXY_XDS_DEBUG_VIA_AGENT (not there), PROXY_XDS_DEBUG_VIA_AGENT_PORT (not there); " +
				"see docs/from-istio-agent.md",
		},
		{[]string{"METRICS_LOCALHOST_ACCESS_ONLY=true"}, "METRICS_LOCALHOST_ACCESS_ONLY has no effect without ISTIO_PROMETHEUS_ANNOTATIONS; write the address in status.metrics"},
		{[]string{"TERMINATION_DRAIN_DURATION_SECONDS=5"}, "TERMINATION_DRAIN_DURATION_SECONDS has no effect: the agent runs no proxy"},
	} {
		_, warnings, err := Read(Input{Environ: test.environ})
		if got := strings.Join(warnings, "\n"); err != nil || got != test.want {
			t.Errorf("%q: got %q, %v", test.environ, got, err)
		}
	}
}

func TestIstiosProxyVariables(t *testing.T) {
	const drain = "proxy: {drain: {admin: 'unix:/run/envoy'}}\n"
	for _, test := range []struct {
		file, variable, setting, want string
	}{
		{"", "TERMINATION_DRAIN_DURATION_SECONDS=33", "proxy.drain.time", "`33s`"},
		{"", "TERMINATION_DRAIN_DURATION_SECONDS=30", "proxy.drain.admin", "`127.0.0.1:15000`"},
		{drain, "TERMINATION_DRAIN_DURATION_SECONDS=30", "proxy.drain.admin", "`unix:/run/envoy`"},
		{"", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "proxy.drain.min_time", "`5s`"},
		{"", `ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","path":"/m?a,b","port":"8080"}`, "status.metrics_from", "`[http://127.0.0.1:15090/stats/prometheus http://127.0.0.1:8080/m?a%2Cb]`"},
		{"", `ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"false"}`, "status.metrics", "none"},
		{"", "ENVOY_STATUS_PORT=15021", "status.probes", "`:15021`"},
	} {
		c, _, err := Read(Input{FileName: "c", File: []byte(test.file), Environ: []string{test.variable}, Command: []string{"envoy"}})
		if got := written(lookUp(c, test.setting).Value); err != nil || got != test.want {
			t.Errorf("%s: %s is %s, %v, want %s", test.variable, test.setting, got, err, test.want)
		}
	}
	for _, wrong := range []string{
		"TERMINATION_DRAIN_DURATION_SECONDS=soon", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=maybe", "ISTIO_PROMETHEUS_ANNOTATIONS=x", `ISTIO_PROMETHEUS_ANNOTATIONS={"port":"15020"}`,
		`ISTIO_PROMETHEUS_ANNOTATIONS={"port":"x@evil"}`, "ENVOY_STATUS_PORT=x",
	} {
		name, _, _ := strings.Cut(wrong, "=")
		if _, _, err := Read(Input{Environ: []string{wrong}, Command: []string{"envoy"}}); err == nil || !strings.HasPrefix(err.Error(), name+" is ") {
			t.Errorf("%s: got %v", wrong, err)
		}
	}
}

// Istio's agent then answers no client outside the pod.
func TestMetricsAreLocalWithIstiosVariable(t *testing.T) {
	for value, want := range map[string]string{"true": "127.0.0.1:15020", "1": "127.0.0.1:15020", "false": ":15020"} {
		c, warnings, err := Read(Input{Environ: []string{"METRICS_LOCALHOST_ACCESS_ONLY=" + value, `ISTIO_PROMETHEUS_ANNOTATIONS={"port":"8080"}`}})
		if err != nil || c.Status.Metrics != want || len(warnings) > 0 {
			t.Errorf("%s: got %q, %v, %v", value, c.Status.Metrics, warnings, err)
		}
	}
	if _, _, err := Read(Input{Environ: []string{"METRICS_LOCALHOST_ACCESS_ONLY=x"}}); err == nil || !strings.HasPrefix(err.Error(), `METRICS_LOCALHOST_ACCESS_ONLY is "x"`) {
		t.Errorf("got %v", err)
	}
}

func TestProbesGiveWayToMetricsOnTheSamePort(t *testing.T) {
	for _, local := range []string{"true", "false"} {
		c, warnings, err := Read(Input{Environ: []string{"ENVOY_STATUS_PORT=15020", `ISTIO_PROMETHEUS_ANNOTATIONS={"port":"8080"}`, "METRICS_LOCALHOST_ACCESS_ONLY=" + local}})
		const want = "ENVOY_STATUS_PORT has no effect: port 15020 is that of the metrics; set status.probes to another one"
		if err != nil || c.Status.Probes != "" || c.Status.Metrics == "" || strings.Join(warnings, "\n") != want {
			t.Errorf("got %+v, %v, %v", c.Status, warnings, err)
		}
	}
}

func TestDocsAndCodeHaveOneTableOfIstiosVariables(t *testing.T) {
	text, err := os.ReadFile(programs.File(t, "docs/from-istio-agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want, fields []string
	page := rows(t)
	for _, v := range istiocompat.Fields() {
		fields = append(fields, "| `"+v.Name+"` | "+string(v.Fate)+" | "+v.Note+" |\n")
	}
	for _, v := range istiocompat.Variables() {
		want = append(want, "| `"+v.Name+"` | "+string(v.Fate)+" | "+v.Note+" |\n")
		if (v.Fate == istiocompat.Taken) && page[v.Name] == nil {
			t.Errorf("docs/operators.md has no row for %s", v.Name)
		}
	}
	for _, table := range [][]string{want, fields} {
		if !strings.Contains(string(text), "|---|---|---|\n"+strings.Join(table, "")) {
			t.Errorf("docs/from-istio-agent.md should have the rows:\n%s", strings.Join(table, ""))
		}
	}
}
