package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

const single = `config_source: {api_config_source: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: countersign}}]}, resource_api_version: V3}`

func TestFaultsOfABootstrapAreFound(t *testing.T) {
	text, err := os.ReadFile(programs.File(t, "examples/on-demand/envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const ads = "config_source: {ads: {}, resource_api_version: V3}"
	for title, c := range map[string]struct {
		change []string // what is replaced, and by what
		want   []string
	}{
		"the example":           {nil, nil},
		"state of the world":    {[]string{"api_type: DELTA_GRPC", "api_type: GRPC"}, []string{"state of the world (api_type GRPC)"}},
		"no api_type":           {[]string{"api_type: DELTA_GRPC", "#"}, []string{"state of the world"}},
		"no timeout":            {[]string{"transport_socket_connect_timeout: 10s", "name: chain"}, []string{"transport_socket_connect_timeout is not set"}},
		"tickets":               {[]string{"disable_stateless_session_resumption: true", "#"}, []string{"while sessions can be resumed"}},
		"a session cache":       {[]string{"disable_stateful_session_resumption: true", "disable_stateful_session_resumption: false"}, []string{"(the cost of each connection is in docs/on-demand.md)"}},
		"a stream each":         {[]string{ads, single}, []string{`max_requests of the cluster "countersign" is 1024 for 10000 names`}},
		"both, in camel case":   {[]string{ads, strings.ReplaceAll(strings.ReplaceAll(single, "DELTA_GRPC", "GRPC"), "api_config_source", "apiConfigSource")}, []string{"state of the world", "max_requests"}},
		"with a larger breaker": {[]string{ads, single, "type: STATIC", "type: STATIC\n      circuit_breakers: {thresholds: [{max_requests: 50000}]}"}, nil},
		"google_grpc":           {[]string{ads, strings.Replace(single, "envoy_grpc: {cluster_name: countersign}", "google_grpc: {target_uri: \"unix:///run/s\", stat_prefix: s}", 1)}, nil},
		"no selector":           {[]string{"on_demand_secret.v3.Config", "other.v3.Config", "api_type: DELTA_GRPC", "api_type: GRPC"}, nil},
		"no bootstrap":          {[]string{"node: {", "\tnode: {"}, []string{"neither YAML nor JSON"}},
	} {
		bootstrap := string(text)
		for i := 0; i < len(c.change); i += 2 {
			if !strings.Contains(bootstrap, c.change[i]) {
				t.Fatalf("%s: the example does not have %q", title, c.change[i])
			}
			bootstrap = strings.Replace(bootstrap, c.change[i], c.change[i+1], 1)
		}
		path := filepath.Join(t.TempDir(), "envoy.yaml")
		if err := os.WriteFile(path, []byte(bootstrap), 0o600); err != nil {
			t.Fatal(err)
		}
		got := Faults(path, 10_000)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", title, got)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) || !strings.HasPrefix(got[i], path+": ") {
				t.Errorf("%s: %q, want %q", title, got[i], want)
			}
		}
	}
	if got := Faults("/absent/envoy.yaml", 1); len(got) != 1 {
		t.Errorf("an absent file: %q", got)
	}
}

func TestFileOfACommandLineIsFound(t *testing.T) {
	for command, want := range map[string]string{
		"envoy -c a.yaml": "a.yaml", "envoy --config-path a.yaml -l info": "a.yaml", "envoy --config-path=a.yaml": "a.yaml", "envoy -c": "", "nginx": "",
		"/usr/bin/envoy-1.40 -c a.yaml": "a.yaml", "nginx -c nginx.conf": "", "sh -c envoy": "", "": "",
	} {
		if got := FileOf(strings.Fields(command)); got != want {
			t.Errorf("%s: %q", command, got)
		}
	}
}

// Each filter chain may have the selector.
func TestFaultOfManyChainsIsOneWarning(t *testing.T) {
	chain := `{"typed_config": {"@type": "type.googleapis.com/envoy.` + selectorType + `", "config_source": {"ads": {}}}}`
	path := filepath.Join(t.TempDir(), "envoy.json")
	text := `{"dynamic_resources": {"ads_config": {"api_type": "GRPC"}}, "chains": [` + strings.Repeat(chain+",", 50) + chain + `]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Faults(path, 1); len(got) != 3 { // state of the world, resumption, no timeout
		t.Errorf("%d warnings", len(got))
	}
}
