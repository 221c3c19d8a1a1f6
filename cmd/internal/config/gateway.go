package config

import (
	"cmp"
	"fmt"
	"net"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Gateway is a second SDS socket for the Envoys of a gateway. It serves kubernetes://…,
// kubernetes-gateway://… and configmap://… names from a discovery service (istiod or
// countersign-discovery), over ADS and mutual TLS. The agent presents the certificate
// "default".
type Gateway struct {
	// Enabled turns it on. Default: false.
	Enabled bool `json:"enabled"`
	// Socket is a unix socket for the peers that socket allows. Default:
	// ./var/run/ingress_gateway/sds.
	Socket string `json:"socket"`
	// Address of the service, host:port. Default: istiod.istio-system.svc:15012.
	Address string `json:"address"`
	// ServerName is the DNS name in its certificate. Default: the host of address.
	ServerName string `json:"server_name"`
	// ServerSPIFFEID is the SPIFFE ID in its certificate, checked instead of a DNS name.
	// istiod's certificate has none. Default: none.
	ServerSPIFFEID string `json:"server_spiffe_id"`
	// RootFile contains the roots (PEM) that verify its certificate. Default: the trust
	// bundle "ROOTCA".
	RootFile string `json:"root_file"`
	// NodeID is the node ID to send. Default: router~127.0.0.1~countersign.NAMESPACE~NAMESPACE.svc.cluster.local.
	NodeID string `json:"node_id"`
	// Cluster is the cluster ID to claim. Default: none.
	Cluster string `json:"cluster"`
	// TokenFile contains the token to send while there is no certificate. Default: none.
	TokenFile string `json:"token_file"`
}

// completeGateway fills in derived settings and rejects those without effect.
func (c *Config) completeGateway(p *problems) {
	g := &c.Gateway
	if !g.Enabled {
		c.checkGatewayOff(p)
		return
	}
	g.Address = cmp.Or(g.Address, istiocompat.Istiod)
	if host, port, err := net.SplitHostPort(g.Address); err != nil || host == "" || port == "" {
		c.say(p, "gateway.address", g.Address, "write host:port, as in "+istiocompat.Istiod)
	}
	if g.NodeID == "" && c.Namespace != "" {
		g.NodeID = fmt.Sprintf("router~127.0.0.1~countersign.%s~%s.svc.cluster.local", c.Namespace, c.Namespace)
	}
	switch n := len(g.NodeID); {
	case n == 0:
		c.say(p, "gateway.node_id", "", "write the node ID for the discovery service, or set namespace")
	case n > maxNodeID:
		c.say(p, "gateway.node_id", g.NodeID, fmt.Sprintf("it has %d bytes, %d are allowed", n, maxNodeID))
	}
	c.checkGatewayServer(p)
	c.checkGatewaySocket(p)
	if c.Workloads.On() {
		c.say(p, "gateway.enabled", true, "an agent of many workloads has no certificate of its own for a discovery service; remove gateway, or workloads")
	}
}

// maxNodeID is the limit of countersign-discovery, in bytes.
const maxNodeID = 1024

func (c *Config) checkGatewayServer(p *problems) {
	g := c.Gateway
	if g.ServerSPIFFEID == "" {
		return
	}
	if _, err := pki.ParseSPIFFEID(g.ServerSPIFFEID); err != nil {
		p.add(fmt.Errorf("gateway.server_spiffe_id: %w", err))
	}
	if g.ServerName != "" {
		c.say(p, "gateway.server_name", g.ServerName, "gateway.server_spiffe_id replaces it; remove one of the two")
	}
}

func (c *Config) checkGatewayOff(p *problems) {
	switch {
	case c.Socket.Enabled:
	case c.Workloads.On():
		c.say(p, "socket.enabled", false, "the certificates of workloads are served over SDS; set it to true")
	case c.WorkloadAPI.Socket == "" && len(c.Outputs) == 0:
		c.say(p, "socket.enabled", false, "nothing would be served; set it or gateway.enabled to true, or set workload_api.socket or outputs")
	}
	for _, s := range []struct{ path, value string }{
		{"gateway.address", c.Gateway.Address}, {"gateway.server_name", c.Gateway.ServerName}, {"gateway.root_file", c.Gateway.RootFile},
		{"gateway.server_spiffe_id", c.Gateway.ServerSPIFFEID},
		{"gateway.node_id", c.Gateway.NodeID}, {"gateway.cluster", c.Gateway.Cluster}, {"gateway.token_file", c.Gateway.TokenFile},
	} {
		if s.value != "" {
			c.say(p, s.path, s.value, "it has no effect while gateway.enabled is false; set that to true, or remove this")
		}
	}
}

func (c *Config) checkGatewaySocket(p *problems) {
	c.needSocket(p, "gateway.socket", c.Gateway.Socket)
	for _, other := range []struct{ path, value string }{
		{"socket.path", c.Socket.Path}, {"socket.files_path", c.Socket.FilesPath}, {"workload_api.socket", c.WorkloadAPI.Socket},
	} {
		if c.Gateway.Socket == other.value {
			c.say(p, "gateway.socket", c.Gateway.Socket, "same path as "+other.path+"; write another path")
		}
	}
}
