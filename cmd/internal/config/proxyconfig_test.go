package config

import (
	"strings"
	"testing"
)

// readProxyConfig reads Istio's variables beside a file, for an agent with a proxy.
func readProxyConfig(file string, environ ...string) (Config, string, error) {
	c, warnings, err := Read(Input{FileName: "c", File: []byte(file), Environ: environ, Command: []string{"envoy"}})
	return c, strings.Join(warnings, "\n"), err
}

func TestFieldsOfProxyConfigAreTaken(t *testing.T) {
	const discovery, metadata = `PROXY_CONFIG={"discoveryAddress":"istiod-canary.mesh.svc:15012"}`, "PROXY_CONFIG=proxyMetadata: {SECRET_TTL: 3h, PILOT_CERT_PROVIDER: kubernetes}"
	const annotations = `ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","port":"8080"}`
	for _, test := range []struct {
		file    string
		environ []string
		setting string
		want    string
		from    string
	}{
		{"", []string{discovery}, "providers.citadel.address", "`istiod-canary.mesh.svc:15012`", "PROXY_CONFIG.discoveryAddress"},
		{"", []string{discovery, "CA_PROVIDER=Citadel"}, "providers.citadel.address", "`istiod-canary.mesh.svc:15012`", "PROXY_CONFIG.discoveryAddress"},
		{"", []string{discovery, "CA_ADDR=istiod.mesh.svc:15012", "ENABLE_INGRESS_GATEWAY_SDS=true"}, "providers.citadel.address", "`istiod.mesh.svc:15012`", "CA_ADDR"},
		{"", []string{discovery, "CA_ADDR=istiod.mesh.svc:15012", "ENABLE_INGRESS_GATEWAY_SDS=true"}, "gateway.address", "`istiod-canary.mesh.svc:15012`", "PROXY_CONFIG.discoveryAddress"},
		{"", []string{metadata}, "ttl", "`3h`", "PROXY_CONFIG.proxyMetadata.SECRET_TTL"},
		{"", []string{metadata, "SECRET_TTL=2h"}, "ttl", "`2h`", "SECRET_TTL"},
		{"ttl: 5h", []string{metadata}, "ttl", "`3h`", "PROXY_CONFIG.proxyMetadata.SECRET_TTL"},
		{"", []string{metadata}, "providers.citadel.settings.root_file", "`/var/run/secrets/kubernetes.io/serviceaccount/ca.crt`", "PROXY_CONFIG.proxyMetadata.PILOT_CERT_PROVIDER"},
		{"", []string{"PROXY_CONFIG=termination_drain_duration: 33s"}, "proxy.drain.time", "`33s`", "PROXY_CONFIG.terminationDrainDuration"},
		{"", []string{"PROXY_CONFIG=terminationDrainDuration: 33s"}, "proxy.drain.admin", "`127.0.0.1:15000`", "PROXY_CONFIG.terminationDrainDuration"},
		{"", []string{"PROXY_CONFIG={terminationDrainDuration: 33s, proxyAdminPort: 15001}"}, "proxy.drain.admin", "`127.0.0.1:15001`", "PROXY_CONFIG.proxyAdminPort"},
		{"", []string{"PROXY_CONFIG=terminationDrainDuration: 33s", "TERMINATION_DRAIN_DURATION_SECONDS=3"}, "proxy.drain.time", "`3s`", "TERMINATION_DRAIN_DURATION_SECONDS"},
		{"proxy: {reload: {hot_restart: true}, watch: {folders: [/e]}}", []string{"PROXY_CONFIG=drainDuration: 25s"}, "proxy.reload.drain_time", "`25s`", "PROXY_CONFIG.drainDuration"},
		{"", []string{"PROXY_CONFIG=statusPort: 15030", annotations}, "status.metrics", "`:15030`", "ISTIO_PROMETHEUS_ANNOTATIONS"},
	} {
		c, warnings, err := readProxyConfig(test.file, test.environ...)
		got := lookUp(c, test.setting)
		if err != nil || written(got.Value) != test.want || got.From != test.from {
			t.Errorf("%q: %s is %s from %s, %v; want %s from %s (%s)", test.environ, test.setting, written(got.Value), got.From, err, test.want, test.from, warnings)
		}
	}
}

func TestFieldsOfProxyConfigWithoutEffectAreNamed(t *testing.T) {
	for content, want := range map[string]string{
		"": "", "{}": "", "null": "",
		"{concurrency: 0, tracing: {}, extraStatTags: [], serviceCluster: istio-proxy, statNameLength: 189, controlPlaneAuthPolicy: MUTUAL_TLS, holdApplicationUntilProxyStarts: false, meshId: ''}": "",
		"{concurrency: 2, tracing: {lightstep: {accessToken: value-that-is-secret}}, config_path: /etc/x, sds: {enabled: true}}":                                                                     "PROXY_CONFIG.concurrency (not there), PROXY_CONFIG.configPath (not there), PROXY_CONFIG.sds (not needed), PROXY_CONFIG.tracing (not there)",
		"{newField: value-that-is-secret, statusPort: 1, drainDuration: 20s, proxyAdminPort: 15001}":                                                                                                 "PROXY_CONFIG.drainDuration (no effect here), PROXY_CONFIG.newField (unknown), PROXY_CONFIG.proxyAdminPort (no effect here), PROXY_CONFIG.statusPort (no effect here)",
		"proxyMetadata: {ISTIO_META_X: value-that-is-secret, CA_HEADER_X: value-that-is-secret, NOBODY_KNOWS: value-that-is-secret, POD_NAME: x}":                                                    "ISTIO_META_X (not there), PROXY_CONFIG.proxyMetadata.CA_HEADER_X (not there), PROXY_CONFIG.proxyMetadata.NOBODY_KNOWS (not there)",
		"proxyMetadata: {GIVEN: value-that-is-secret}": "",
	} {
		_, warnings, err := readProxyConfig("", "PROXY_CONFIG="+content, "GIVEN=x")
		if want != "" {
			want = "variables of Istio's agent without effect: " + want + "; see docs/from-istio-agent.md"
		}
		if err != nil || warnings != want {
			t.Errorf("%s: got %q, %v; want %q", content, warnings, err, want)
		}
	}
	// With another CA, the address of istiod is Envoy's alone.
	for _, discovery := range []string{"istiod-canary.mesh.svc:15012", "istiod.istio-system.svc:15012"} {
		_, warnings, err := readProxyConfig("", "PROXY_CONFIG=discoveryAddress: "+discovery, "CA_PROVIDER=vault", "CA_ADDR=vault://v")
		if err != nil || strings.Contains(warnings, "PROXY_CONFIG.discoveryAddress (no effect here)") != strings.Contains(discovery, "canary") {
			t.Errorf("%s: got %q, %v", discovery, warnings, err)
		}
	}
}

func TestMalformedProxyConfigIsOneSentence(t *testing.T) {
	const annotations = `ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","port":"8080"}`
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'm'; c++ {
		before := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+before+",", 8) + "*" + before + "]\n"
	}
	for content, want := range map[string]string{
		"{":                                      "PROXY_CONFIG is not valid YAML: ",
		"a: b: c":                                "PROXY_CONFIG is not valid YAML: ",
		"statusPort: 70000":                      `PROXY_CONFIG.statusPort is "70000": write a port`,
		bomb:                                     "PROXY_CONFIG is not valid YAML: ",
		strings.Repeat("[", 10000):               "PROXY_CONFIG is not valid YAML: ",
		"{concurrency: 1, concurrency: 2}":       "PROXY_CONFIG is not valid YAML: ",
		"{statusPort: 1, status_port: 2}":        "PROXY_CONFIG has statusPort twice",
		"text":                                   "PROXY_CONFIG holds no fields",
		"[1]":                                    "PROXY_CONFIG holds no fields",
		strings.Repeat("#", 64<<10+1):            "PROXY_CONFIG has 65537 bytes",
		"discoveryAddress: istiod":               `PROXY_CONFIG.discoveryAddress is "istiod": write host:port`,
		"discoveryAddress: [a]":                  `PROXY_CONFIG.discoveryAddress is "": write text`,
		"terminationDrainDuration: soon":         `PROXY_CONFIG.terminationDrainDuration is "soon": write a duration`,
		"terminationDrainDuration: -5s":          `PROXY_CONFIG.terminationDrainDuration is "-5s": write a duration`,
		"statusPort: -1":                         `PROXY_CONFIG.statusPort is "-1": write a port`,
		"proxyMetadata: [a]":                     "PROXY_CONFIG.proxyMetadata holds no variables",
		"proxyMetadata: {SECRET_TTL: {}}":        "PROXY_CONFIG.proxyMetadata.SECRET_TTL is not text",
		"proxyMetadata: {SECRET_TTL: soon}":      "PROXY_CONFIG.proxyMetadata.SECRET_TTL: ",
		"proxyMetadata: {PKCS8_KEY: perhaps}":    `PROXY_CONFIG.proxyMetadata.PKCS8_KEY is "perhaps": `,
		"proxyMetadata: {ECC_CURVE: 'P256\"'}\n": `PROXY_CONFIG.proxyMetadata.ECC_CURVE is "P256\"": `,
	} {
		_, _, err := readProxyConfig("gateway: {enabled: true}", "PROXY_CONFIG="+content, annotations)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 {
			t.Errorf("%.60q: got %.2000v, want %q", content, err, want)
		}
	}
}
