package config

import (
	"strings"
	"testing"
)

func TestStatusAddresses(t *testing.T) {
	for status, want := range map[string]string{
		"{probes: ':15021', metrics: '0.0.0.0:15020'}":                                                                      "",
		"{metrics: ':1', metrics_secret: default, metrics_token_file: t}":                                                   "",
		"{metrics: ':1', metrics_from: ['unix:/run/envoy', 'http://127.0.0.1:15090/stats/prometheus', 'http://[::1]:9/m']}": "",
		"{probes: x}":                             `status.probes is "x": write host:port`,
		"{metrics: '127.0.0.1'}":                  `status.metrics is "127.0.0.1": write host:port`,
		"{probes: ':1', metrics: ':1'}":           "that is status.probes",
		"{metrics_from: ['unix:/run/envoy']}":     "status.metrics is not set",
		"{metrics: ':1', metrics_token_file: t}":  "a token needs TLS",
		"{metrics: ':1', metrics_secret: ROOTCA}": `status.metrics_secret is "ROOTCA": write the name of a key pair`,
		"{metrics: ':1', metrics_secret: default, metrics_client_roots: ROOTCA, metrics_client_names: [prometheus.example, 'spiffe://example.org/prometheus']}": "",
		"{metrics: ':1', metrics_client_roots: ROOTCA}":                                                               "a client certificate needs TLS",
		"{metrics_client_roots: ROOTCA}":                                                                              "status.metrics is not set",
		"{metrics: ':1', metrics_secret: default, metrics_client_roots: default}":                                     `status.metrics_client_roots is "default": write the name of a trust bundle`,
		"{metrics: ':1', metrics_secret: default, metrics_client_roots: nobody's}":                                    "write the name of a trust bundle",
		"{metrics: ':1', metrics_secret: default, metrics_client_names: [a]}":                                         "status.metrics_client_roots is not set",
		"{metrics: ':1', metrics_secret: default, metrics_client_roots: ROOTCA, metrics_client_names: ['spiffe://']}": "write SPIFFE IDs and DNS names",
		"{metrics: ':1', metrics_secret: default, metrics_client_roots: ROOTCA, metrics_client_names: ['']}":          "write SPIFFE IDs and DNS names",
		"{metrics: ':1', metrics_secret: nobody's}":                                                                   "write the name of a key pair",
		"{metrics: ':1', metrics_from: ['http://169.254.169.254:80/latest']}":                                         "write http:// with a loopback host",
		"{metrics: ':1', metrics_from: ['http://u:p@127.0.0.1:1/']}":                                                  "write http:// with a loopback host",
		"{metrics: ':1', metrics_from: ['file:///etc/passwd']}":                                                       "write http:// with a loopback host",
		"{metrics: ':1', metrics_from: ['unix:a', 'unix:b', 'unix:c', 'unix:d', 'unix:e']}":                           "write 4 programs at most",
	} {
		_, _, err := load(working+"status: "+status+"\n", nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", status, err, want)
		}
	}
}
