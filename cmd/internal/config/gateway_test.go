package config

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
)

func TestGatewayIsOffAndWorkloadSocketOnByDefault(t *testing.T) {
	c, _ := mustLoad(t, working, nil)
	if c.Gateway.Enabled || c.Gateway.Address != "" || !c.Socket.Enabled || c.ListenPath() != istiocompat.Socket {
		t.Errorf("without a word there is %+v, %+v", c.Gateway, c.Socket)
	}
	c, _ = mustLoad(t, working+"gateway: {enabled: true}\n", nil)
	want := Gateway{
		Enabled: true, Socket: "./var/run/ingress_gateway/sds", Address: "istiod.istio-system.svc:15012",
		NodeID: "router~127.0.0.1~countersign.demo~demo.svc.cluster.local",
	}
	if c.Gateway != want || !c.Socket.Enabled {
		t.Errorf("got %+v, want %+v", c.Gateway, want)
	}
	if got := NeedRestart([]string{"gateway.address", "socket.enabled"}); len(got) != 2 {
		t.Errorf("a running agent would take over all but %v", got)
	}
}

func TestIstioVariablesSwitchBothSockets(t *testing.T) {
	file := working
	for name, test := range map[string]struct {
		environ           []string
		workload, gateway bool
		cluster, token    string
	}{
		"as Istio's node agent for workloads": {[]string{"ENABLE_WORKLOAD_SDS=true", "ENABLE_INGRESS_GATEWAY_SDS=false"}, true, false, "", ""},
		"as Istio's node agent for gateways":  {[]string{"ENABLE_WORKLOAD_SDS=false", "ENABLE_INGRESS_GATEWAY_SDS=true", "ISTIO_META_CLUSTER_ID=west"}, false, true, "west", istioToken},
		"both":                                {[]string{"ENABLE_INGRESS_GATEWAY_SDS=1"}, true, true, "", istioToken},
		"in our words":                        {[]string{"COUNTERSIGN_GATEWAY_ENABLED=true", "COUNTERSIGN_SOCKET_ENABLED=false"}, false, true, "", ""},
		"ours over Istio's":                   {[]string{"ENABLE_INGRESS_GATEWAY_SDS=false", "COUNTERSIGN_GATEWAY_ENABLED=true"}, true, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, warnings := mustLoad(t, file, test.environ)
			if c.Socket.Enabled != test.workload || c.Gateway.Enabled != test.gateway || c.Gateway.Cluster != test.cluster || c.Gateway.TokenFile != test.token {
				t.Errorf("got %+v, %+v", c.Socket, c.Gateway)
			}
			if (c.ListenPath() != "") != test.workload {
				t.Errorf("the workload's socket is %q", c.ListenPath())
			}
			if len(warnings) != 0 {
				t.Errorf("warned: %v", warnings)
			}
		})
	}
}

func TestWrongGatewayIsRefused(t *testing.T) {
	for file, want := range map[string]string{
		"gateway: {enabled: true, address: istiod}\n":                                    `gateway.address is "istiod": write host:port`,
		"gateway: {enabled: true, address: ':15012'}\n":                                  "write host:port",
		"gateway: {enabled: true, socket: ''}\n":                                         "gateway.socket is not set",
		"gateway: {enabled: true, socket: " + strings.Repeat("x", 108) + "}\n":           "at most 107",
		"gateway: {enabled: true, socket: " + istiocompat.Socket + "}\n":                 "same path as socket.path",
		"gateway: {enabled: true, socket: w}\nworkload_api: {socket: w}\n":               "same path as workload_api.socket",
		"gateway: {enabled: true, node_id: " + strings.Repeat("x", 1025) + "}\n":         "it has 1025 bytes, 1024 are allowed",
		"gateway: {address: 'a:1'}\n":                                                    "gateway.enabled is false",
		"gateway: {root_file: r.pem}\n":                                                  "gateway.enabled is false",
		"gateway: {server_spiffe_id: spiffe://a/b}\n":                                    "gateway.enabled is false",
		"gateway: {enabled: true, server_spiffe_id: 'spiffe://a'}\n":                     "gateway.server_spiffe_id: SPIFFE ID \"spiffe://a\" is not valid",
		"gateway: {enabled: true, server_spiffe_id: 'spiffe://a/b', server_name: web}\n": `gateway.server_name is "web": gateway.server_spiffe_id replaces it`,
		"gateway: {token_file: t}\n":                                                     "gateway.enabled is false",
		"socket: {enabled: false}\n":                                                     "nothing would be served",
		"gateway: {enable: true}\n":                                                      "enable",
	} {
		if _, _, err := load(working+file, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
	for _, file := range []string{"workload_api: {socket: w}\n", "outputs: [{name: web, folder: certs}]\n", "gateway: {enabled: true}\n"} {
		if c, _, err := load(working+"socket: {enabled: false}\n"+file, nil); err != nil || c.ListenPath() != "" {
			t.Errorf("%s without SDS: %q, %v", file, c.ListenPath(), err)
		}
	}
	unnamed := strings.Replace(working, "namespace: demo\nservice_account: web", "secrets: [{name: default, dns_names: [a.example]}]", 1)
	if _, _, err := load(unnamed+"gateway: {enabled: true}\n", nil); err == nil || !strings.Contains(err.Error(), "gateway.node_id is not set") {
		t.Errorf("got %v", err)
	}
	if _, _, err := load(working, []string{"ENABLE_INGRESS_GATEWAY_SDS=yes"}); err == nil || !strings.Contains(err.Error(), "must be true or false") {
		t.Errorf("got %v", err)
	}
}

func TestAgentOfManyIdentitiesHasNoGateway(t *testing.T) {
	file := "workloads: {verified_by: authority}\ngateway: {enabled: true, node_id: node-1}\n"
	if _, _, err := load(judging+file, nil); err == nil || !strings.Contains(err.Error(), "remove gateway, or workloads") {
		t.Errorf("got %v", err)
	}
}
