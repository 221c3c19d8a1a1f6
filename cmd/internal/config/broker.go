package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Broker serves the SPIFFE Broker API: components such as node proxies get the secrets of the
// workloads that they act for, those of workloads.
type Broker struct {
	// Socket is unix:///PATH, in a folder of its own, or tcp://IP:PORT with a loopback IP. Default: off.
	Socket string `json:"socket"`
	// SPIFFEID is the agent's own identity for the mutual TLS, signed by the provider of "default".
	// Required.
	SPIFFEID string `json:"spiffe_id"`
	// Node is the node whose pods brokers may refer to, or * for those of all nodes. Required for
	// references to Kubernetes objects. The API server is that of workloads.token_review, or else that of
	// the agent's own pod.
	Node string `json:"node"`
	// Brokers are the components that may connect. Required.
	Brokers []BrokerClient `json:"brokers"`

	// Path or Address is where Socket is.
	Path    string `json:"-"`
	Address string `json:"-"`
}

// BrokerClient is a component that may act for workloads.
type BrokerClient struct {
	// SPIFFEID is that of its certificate, which trust_domain's roots verify, or those of
	// bundle_endpoints.
	SPIFFEID string `json:"spiffe_id"`
	// References are what it may refer to: pid, a process, whose workloads.peers entry decides; or
	// kubernetes, a pod, for which workloads.spiffe_id is filled in.
	References []string `json:"references"`
}

// What BrokerClient.References may be.
const (
	ReferencePID        = "pid"
	ReferenceKubernetes = "kubernetes"
)

// On reports whether the Broker API is served.
func (b Broker) On() bool { return b.Socket != "" }

// Uses reports whether a broker may use references of that type.
func (b Broker) Uses(reference string) bool {
	return slices.ContainsFunc(b.Brokers, func(one BrokerClient) bool { return slices.Contains(one.References, reference) })
}

// completeBroker runs before the workloads, which are on with it.
func (c *Config) completeBroker(p *problems) {
	b, path := &c.Broker, "broker."
	if !b.On() {
		if b.SPIFFEID+b.Node != "" || len(b.Brokers) > 0 {
			c.say(p, path+"socket", "", "write unix:///PATH, in a folder of its own")
		}
		return
	}
	c.Workloads.Brokered = true
	c.completeBrokerSocket(p, b)
	if _, err := pki.ParseSPIFFEID(b.SPIFFEID); err != nil {
		c.say(p, path+"spiffe_id", b.SPIFFEID, "write the SPIFFE ID of this agent, which brokers verify")
	}
	if len(b.Brokers) == 0 {
		p.add(fmt.Errorf("%sbrokers is empty: list the SPIFFE IDs that may connect", path))
	}
	for i := range b.Brokers {
		c.checkBroker(p, i)
	}
	if b.Uses(ReferenceKubernetes) != (b.Node != "") {
		c.say(p, path+"node", b.Node, "with references to Kubernetes objects, and only then, write the name of the agent's node, or * for all")
	}
	if b.Uses(ReferencePID) && len(c.Workloads.Peers) == 0 {
		p.add(fmt.Errorf("%sbrokers may refer to processes, and workloads.peers, which says who is which workload, is empty: add entries", path))
	}
	for i, peer := range c.Workloads.Peers {
		if peer.SPIFFEID == b.SPIFFEID {
			c.say(p, fmt.Sprintf("workloads.peers.%d.spiffe_id", i), peer.SPIFFEID, "that is broker.spiffe_id, the agent's own; give the workload another")
		}
	}
}

func (c *Config) completeBrokerSocket(p *problems, b *Broker) {
	address, isTCP := strings.CutPrefix(b.Socket, "tcp://")
	if isTCP {
		b.Address = address
		if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().IsLoopback() {
			c.say(p, "broker.socket", b.Socket, "write tcp://IP:PORT with a loopback IP, such as tcp://127.0.0.1:8444, or unix:///PATH")
		}
		return
	}
	b.Path = c.socketPath(p, "broker.socket", b.Socket)
	for setting, other := range map[string]string{"socket.path": c.Socket.Path, "socket.files_path": c.Socket.FilesPath} {
		if c.Socket.Enabled && b.Path != "" && filepath.Dir(filepath.Clean(other)) == filepath.Dir(filepath.Clean(b.Path)) {
			c.say(p, "broker.socket", b.Socket, "its folder is that of "+setting+"; the standard wants a folder that workloads do not reach")
		}
	}
}

func (c *Config) checkBroker(p *problems, i int) {
	path, b := fmt.Sprintf("broker.brokers.%d", i), c.Broker.Brokers[i]
	if _, err := pki.ParseSPIFFEID(b.SPIFFEID); err != nil {
		c.say(p, path+".spiffe_id", b.SPIFFEID, "write the SPIFFE ID of the component's certificate")
	}
	if b.SPIFFEID == c.Broker.SPIFFEID {
		c.say(p, path+".spiffe_id", b.SPIFFEID, "that is the agent's own; name the component's")
	}
	if slices.ContainsFunc(c.Broker.Brokers[:i], func(other BrokerClient) bool { return other.SPIFFEID == b.SPIFFEID }) {
		c.say(p, path+".spiffe_id", b.SPIFFEID, "write each broker once")
	}
	if len(b.References) == 0 {
		c.say(p, path+".references", "", "write what it may refer to: [pid], [kubernetes] or both")
	}
	for _, reference := range b.References {
		if reference != ReferencePID && reference != ReferenceKubernetes {
			c.say(p, path+".references", reference, "write pid or kubernetes")
		}
	}
}
