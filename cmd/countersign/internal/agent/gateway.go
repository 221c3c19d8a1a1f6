package agent

import (
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/token"
)

// gatewayOf returns the gateway's socket, where it is switched on.
func gatewayOf(c config.Gateway, mode config.FileMode, m *metrics.Metrics) agent.Gateway {
	if !c.Enabled {
		return agent.Gateway{}
	}
	out := agent.Gateway{
		Socket: sds.Config{Path: c.Socket, Mode: os.FileMode(mode), Observe: m.GatewayStream},
		Service: gateway.Config{
			Address: c.Address, ServerName: c.ServerName, ServerSPIFFEID: c.ServerSPIFFEID, NodeID: c.NodeID, Cluster: c.Cluster,
			Certificate: config.DefaultSecret, Roots: config.RootCA, RootFile: c.RootFile, Observe: m.Gateway,
		},
	}
	if c.TokenFile != "" {
		out.Service.Token = token.File{Path: c.TokenFile, Optional: true}.Token
	}
	return out
}
