package config

import (
	"strings"
	"testing"
)

const brokered = working + `
trust_domain: shop.test
workloads: {peers: [{uid: 1, executable: /usr/bin/web, cgroup: /system.slice/web.service, spiffe_id: "spiffe://shop.test/web"}, {uid: 1, gid: 2, spiffe_id: "spiffe://shop.test/db"}]}
`

const proxyBroker = `brokers: [{spiffe_id: "spiffe://shop.test/proxy", references: [pid]}]`

func TestBrokerHasSocketOrLoopbackAddress(t *testing.T) {
	for socket, want := range map[string]Broker{
		"unix:///run/brokers/api.sock": {Path: "/run/brokers/api.sock"}, "/run/brokers/api.sock": {Path: "/run/brokers/api.sock"},
		"tcp://127.0.0.1:8444": {Address: "127.0.0.1:8444"}, "tcp://[::1]:8444": {Address: "[::1]:8444"},
	} {
		c, _ := mustLoad(t, brokered+`broker: {socket: "`+socket+`", spiffe_id: "spiffe://shop.test/agent", `+proxyBroker+"}\n", nil)
		if b := c.Broker; !b.On() || b.Path != want.Path || b.Address != want.Address || !b.Uses(ReferencePID) || b.Uses("kubernetes") {
			t.Errorf("%s: %+v", socket, b)
		}
		if !c.Workloads.On() || c.Workloads.Peers[0].GID != nil || *c.Workloads.Peers[1].GID != 2 {
			t.Errorf("workloads are %+v", c.Workloads)
		}
	}
}

func TestPodsHaveIdentitiesByTemplate(t *testing.T) {
	const pods = working + `
trust_domain: shop.test
broker: {socket: /run/brokers/s, node: "*", spiffe_id: "spiffe://shop.test/agent", brokers: [{spiffe_id: "spiffe://shop.test/proxy", references: [kubernetes]}]}
`
	c, _ := mustLoad(t, pods, nil)
	if w := c.Workloads; !w.On() || w.SPIFFEID != "spiffe://shop.test/ns/{kubernetes.io/namespace}/sa/{kubernetes.io/serviceaccount/name}" {
		t.Errorf("workloads are %+v", w)
	}
	mustLoad(t, pods+`workloads: {spiffe_id: "spiffe://shop.test/{kubernetes.io/pod/name}"}`+"\n", nil)
	if _, _, err := load(pods+`workloads: {spiffe_id: "spiffe://shop.test/all"}`+"\n", nil); err == nil {
		t.Error("a template without a claim is taken")
	}
}

func TestBrokerMayHaveJWTSVIDsWithoutWorkloadAPI(t *testing.T) {
	mustLoad(t, brokered+`broker: {socket: /run/brokers/s, spiffe_id: "spiffe://shop.test/agent", `+proxyBroker+"}\nworkload_api: {jwt_svid: {audiences: [a]}}\n", nil)
}

func TestWrongBrokerStopsTheStart(t *testing.T) {
	const own = `spiffe_id: "spiffe://shop.test/agent", `
	for settings, want := range map[string]string{
		`broker: {spiffe_id: "spiffe://shop.test/agent"}`:                                                                 "broker.socket is not set",
		`broker: {socket: "tcp://10.0.0.1:1", ` + own + proxyBroker + `}`:                                                 "with a loopback IP",
		`broker: {socket: "tcp://:1", ` + own + proxyBroker + `}`:                                                         "with a loopback IP",
		`broker: {socket: "http://x", ` + own + proxyBroker + `}`:                                                         "write the path of a unix socket",
		`broker: {socket: /run/b/s, ` + proxyBroker + `}`:                                                                 "broker.spiffe_id is not set",
		`broker: {socket: /run/b/s, ` + own + `}`:                                                                         "broker.brokers is empty",
		`broker: {socket: /run/b/s, ` + own + `brokers: [{references: [pid]}]}`:                                           "broker.brokers.0.spiffe_id is not set",
		`broker: {socket: /run/b/s, ` + own + `brokers: [{spiffe_id: "spiffe://shop.test/proxy"}]}`:                       "broker.brokers.0.references",
		`broker: {socket: /run/b/s, ` + own + `brokers: [{spiffe_id: "spiffe://shop.test/proxy", references: [uid]}]}`:    `broker.brokers.0.references is "uid"`,
		`broker: {socket: /run/b/s, ` + own + `brokers: [{spiffe_id: "spiffe://shop.test/p", references: [kubernetes]}]}`: "broker.node is not set",
		`broker: {socket: /run/b/s, node: here, ` + own + proxyBroker + `}`:                                               `broker.node is "here"`,
		`broker: {node: here}`: "broker.socket is not set",
		`broker: {socket: /run/b/s, ` + own + `brokers: [{spiffe_id: "spiffe://shop.test/agent", references: [pid]}]}`:                                                     "that is the agent's own",
		`broker: {socket: /run/b/s, ` + own + `brokers: [{spiffe_id: "spiffe://shop.test/p", references: [pid]}, {spiffe_id: "spiffe://shop.test/p", references: [pid]}]}`: "write each broker once",
		`broker: {socket: /run/b/s, spiffe_id: "spiffe://shop.test/web", ` + proxyBroker + `}`:                                                                             "that is broker.spiffe_id",
		"socket: {path: /run/b/sds}\n" + `broker: {socket: /run/b/s, ` + own + proxyBroker + `}`:                                                                           "its folder is that of socket.path",
	} {
		if _, _, err := load(brokered+settings+"\n", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", settings, err, want)
		}
	}
}

func TestWrongPeersOfBrokersStopTheStart(t *testing.T) {
	const on = "\nbroker: {socket: /run/b/s, spiffe_id: \"spiffe://shop.test/agent\", " + proxyBroker + "}\n"
	const web = `spiffe_id: "spiffe://shop.test/web"`
	for peers, want := range map[string]string{
		`{uid: 1, executable: web, ` + web + `}`:                                       "write an absolute path",
		`{uid: 1, cgroup: system.slice, ` + web + `}`:                                  "write a path that begins with /",
		`{uid: 1, cgroup: /, ` + web + `}`:                                             "write a path that begins with /",
		`{uid: 1, cgroup: /a/, ` + web + `}`:                                           "write a path that begins with /",
		`{uid: 1, ` + web + `}, {uid: 1, gid: 2, ` + web + `}`:                         "an entry before this one fits the same",
		`{uid: 1, gid: 2, ` + web + `}, {uid: 1, gid: 2, executable: /a, ` + web + `}`: "an entry before this one fits the same",
	} {
		if _, _, err := load(working+"trust_domain: shop.test\nworkloads: {peers: ["+peers+"]}"+on, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", peers, err, want)
		}
	}
	mustLoad(t, working+"trust_domain: shop.test\nworkloads: {peers: [{uid: 1, gid: 2, "+web+"}, {uid: 1, gid: 3, "+web+"}, {uid: 1, "+web+"}]}"+on, nil)
	for _, held := range []string{"executable: /a", "cgroup: /a"} {
		if _, _, err := load(working+"workloads: {peers: [{uid: 1, "+held+", "+web+"}]}\n", nil); err == nil || !strings.Contains(err.Error(), "for callers of the Workload API and the processes of brokers") {
			t.Errorf("%s: %v", held, err)
		}
	}
	if _, _, err := load(working+on, nil); err == nil || !strings.Contains(err.Error(), "workloads.peers, which says who is which workload, is empty") {
		t.Error(err)
	}
}

func TestChangedBrokersNeedNoRestart(t *testing.T) {
	file := func(brokers string) Config {
		return read(t, brokered+`broker: {socket: /run/brokers/s, spiffe_id: "spiffe://shop.test/agent", brokers: [`+brokers+"]}\n")
	}
	const one, other = `{spiffe_id: "spiffe://shop.test/proxy", references: [pid]}`, `{spiffe_id: "spiffe://shop.test/other", references: [pid]}`
	for _, brokers := range []string{other, one + ", " + other} {
		if changed := Changed(file(one), file(brokers)); len(changed) == 0 || len(NeedRestart(changed)) > 0 {
			t.Errorf("changed are %q, of which %q need a restart", changed, NeedRestart(changed))
		}
	}
	if got := NeedRestart([]string{"broker.socket", "broker.spiffe_id", "broker.node"}); len(got) != 3 {
		t.Errorf("only %q need a restart", got)
	}
}
