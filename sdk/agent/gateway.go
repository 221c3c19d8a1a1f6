package agent

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Gateway is a socket for the Envoys of a gateway, whose secrets come from a discovery
// service. It may be the agent's only one.
type Gateway struct {
	// Socket is where they are served. Its Policy is that of Config.Socket, its Log the
	// agent's where it is not set. Without a Path there is none.
	Socket sds.Config
	// Service is where they come from. Its Secrets are the agent's, which are its
	// credential, its Log the agent's where it is not set.
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

// listenGateway takes the gateway's socket, where there is one.
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

// checkGateway refuses a gateway without a certificate of its own to show.
func (c Config) checkGateway() error {
	if c.Gateway.Socket.Path != "" && c.Identities != nil {
		return errors.New("agent: an agent of many identities has none of its own to show to a discovery service: it has no gateway's socket")
	}
	return nil
}

// Gateway returns the state of the gateway's secrets; false where the agent has no such
// socket.
func (a *Agent) Gateway() (gateway.Status, bool) {
	if a.relay == nil {
		return gateway.Status{}, false
	}
	return a.relay.Status(), true
}
