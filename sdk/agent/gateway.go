package agent

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Gateway is a socket for a gateway's Envoys, with secrets from a discovery service. It
// may be the agent's only socket.
type Gateway struct {
	// Socket is where the secrets are served. Its Policy is that of Config.Socket; its Log
	// defaults to the agent's. An empty Path means no gateway.
	Socket sds.Config
	// Service is where the secrets come from. Experimental. The agent sets its Secrets, which are its
	// credential; its Log defaults to the agent's.
	Service gateway.Config
}

// relay is a running client of a discovery service.
type relay struct {
	*gateway.Client
	stop  func()
	quiet chan struct{}
}

func startRelay(client *gateway.Client) *relay {
	ctx, cancel := context.WithCancel(context.Background())
	r := &relay{Client: client, stop: cancel, quiet: make(chan struct{})}
	go func() { defer close(r.quiet); client.Run(ctx) }()
	return r
}

func (r *relay) close() {
	if r != nil {
		r.stop()
		<-r.quiet
	}
}

// listenGateway opens the gateway's socket, if configured.
func (a *Agent) listenGateway(cfg Config, source secret.Source) (client *gateway.Client, err error) {
	if cfg.Gateway.Socket.Path == "" {
		return nil, nil
	}
	cfg.Gateway.Service.Secrets = source
	if client, err = gateway.New(cfg.Gateway.Service); err != nil {
		return nil, err
	}
	cfg.Gateway.Socket.Resources = client
	server, err := sds.Listen(cfg.Gateway.Socket, nil)
	if err != nil {
		return nil, err
	}
	a.servers = append(a.servers, server)
	return client, nil
}

// checkGateway rejects a gateway without a client certificate of its own.
func (c Config) checkGateway() error {
	if c.Gateway.Socket.Path != "" && c.Identities != nil {
		return errors.New("agent: an agent of many identities has none of its own to show to a discovery service: it has no gateway's socket")
	}
	return nil
}

// Gateway returns the state of the gateway's secrets; ok is false without a gateway
// socket. Experimental.
func (a *Agent) Gateway() (gateway.Status, bool) {
	if a.relay == nil {
		return gateway.Status{}, false
	}
	return a.relay.Status(), true
}
