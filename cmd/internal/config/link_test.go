package config

import (
	"strings"
	"testing"
)

// What a kubelet sets in a pod for the Services countersign, countersign-discovery and
// countersign-2 of its namespace.
const links = `
COUNTERSIGN_SERVICE_HOST=10.0.0.1
COUNTERSIGN_SERVICE_PORT=443
COUNTERSIGN_SERVICE_PORT_GRPC_XDS=443
COUNTERSIGN_PORT=tcp://10.0.0.1:443
COUNTERSIGN_PORT_443_TCP=tcp://10.0.0.1:443
COUNTERSIGN_PORT_443_TCP_PROTO=tcp
COUNTERSIGN_PORT_443_TCP_PORT=443
COUNTERSIGN_PORT_443_TCP_ADDR=10.0.0.1
COUNTERSIGN_DISCOVERY_SERVICE_HOST=fd00::1
COUNTERSIGN_DISCOVERY_SERVICE_PORT=15012
COUNTERSIGN_DISCOVERY_PORT=udp://[fd00::1]:15012
COUNTERSIGN_DISCOVERY_PORT_15012_UDP=udp://[fd00::1]:15012
COUNTERSIGN_DISCOVERY_PORT_15012_UDP_PROTO=udp
COUNTERSIGN_DISCOVERY_PORT_15012_UDP_PORT=15012
COUNTERSIGN_DISCOVERY_PORT_15012_UDP_ADDR=fd00::1
COUNTERSIGN_2_PORT_9_SCTP=sctp://10.0.0.2:9
COUNTERSIGN_2_PORT_9_SCTP_PROTO=sctp
COUNTERSIGN_TRUST_DOMAIN_SERVICE_HOST=10.0.0.3
`

func TestServiceLinkVariablesChangeNothing(t *testing.T) {
	mustLoad(t, working, strings.Fields(links))
}

func TestFakeServiceLinkVariableIsRefused(t *testing.T) {
	for entry, want := range map[string]string{
		"COUNTERSIGN_STATUS_PORT=8080":                     "unset it",
		"COUNTERSIGN_PORT=8080":                            "unset it",
		"COUNTERSIGN_PORT=http://10.0.0.1:80":              "unset it",
		"COUNTERSIGN_PORT=tcp://localhost:80":              "unset it",
		"COUNTERSIGN_PORT=tcp://10.0.0.1:0":                "unset it",
		"COUNTERSIGN_PORT=10.0.0.1:80":                     "unset it",
		"COUNTERSIGN_PORT_80_TCP=tcp://10.0.0.1:81":        "unset it",
		"COUNTERSIGN_PORT_80_TCP=udp://10.0.0.1:80":        "unset it",
		"COUNTERSIGN_PORT_80_TCP_PROTO=udp":                "unset it",
		"COUNTERSIGN_PORT_80_TCP_PORT=81":                  "unset it",
		"COUNTERSIGN_PORT_99999_TCP_PORT=99999":            "unset it",
		"COUNTERSIGN_PORT_80_TCP_ADDR=web":                 "unset it",
		"COUNTERSIGN_PORT_80_HTTP=tcp://10.0.0.1:80":       "unset it",
		"COUNTERSIGN_SERVICE_HOST=web.example.org":         "unset it",
		"COUNTERSIGN_SERVICE_HOST=":                        "unset it",
		"COUNTERSIGN_SERVICE_PORT=http":                    "unset it",
		"COUNTERSIGN_SERVICE_PORT=080":                     "unset it",
		"COUNTERSIGN_SERVICE_ACOUNT=10.0.0.1":              "did you mean COUNTERSIGN_SERVICE_ACCOUNT?",
		"COUNTERSIGN_SERVICE_ACCOUNT_SERVICE_HOSTS=10.0.0": "unset it",
		"COUNTERSIGN__SERVICE_HOST=10.0.0.1":               "unset it",
	} {
		name, _, _ := strings.Cut(entry, "=")
		_, _, err := load(working, []string{entry})
		wantError(t, err, "unknown variable "+name+": "+want)
	}
}

// Otherwise a Service could set it.
func TestSettingVariablesAreNotServiceLinks(t *testing.T) {
	for _, s := range append(Settings(), Setting{Flag: ConfigFlag}) {
		if linkName().MatchString(s.Variable()) {
			t.Errorf("%s is what a Service of some name has", s.Variable())
		}
	}
	for _, name := range others {
		if linkName().MatchString(name) {
			t.Errorf("%s is what a Service of some name has", name)
		}
	}
}
