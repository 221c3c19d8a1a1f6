// Package gateway gets a gateway's secrets from a discovery service (istiod, or
// countersign-discovery) and holds them: make a [Client] with [New], have it [Client.Run],
// and give it to an SDS socket as the source of its resources. The service may go away:
// what is held is served on.
//
// There is one stream, however many Envoys ask: the aggregated one (ADS), incremental.
// State of the world would have the whole list sent with each name that is added, would
// send everything again after each reconnect, and could not tell a name that is unknown or
// no longer allowed from one that is not ready yet; both services know the incremental one.
//
// The service is trusted with the secrets and with nothing else of the machine: of a
// secret, only inline bytes are taken, as Envoy would read the file, or the variable, that
// another source names.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config is what a client is made of.
type Config struct {
	// Address of the service, host:port. It is spoken to over TLS 1.2 or later. Required.
	Address string
	// ServerName is the DNS name that the service's certificate is for. Default: the host
	// of Address.
	ServerName string
	// ServerSPIFFEID is the one URI that the service's certificate is for, in place of any
	// DNS name: istiod signs none into a certificate. Default: ServerName counts.
	ServerSPIFFEID string
	// NodeID is told to the service, which decides by the credential and not by it. Required.
	NodeID string
	// Cluster is the claim of which cluster the gateway is in: the metadata "clusterid",
	// and CLUSTER_ID of the node's. Default: none.
	Cluster string
	// Secrets have the key pair Certificate that is shown to the service, and the trust
	// bundle Roots that it is verified with. Required; "default", "ROOTCA".
	Secrets            secret.Source
	Certificate, Roots string
	// RootFile is a PEM file that is used in place of Roots, read for each connection.
	RootFile string
	// Token is sent while no certificate is held, and Rejected is told of one that the
	// service refused. Default: there is none.
	Token         func(context.Context) (ca.Bearer, error)
	TokenRejected func(ca.Token)
	// Dial makes the connection that TLS is spoken on. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// FirstAnswer is how long a service that has told nothing yet may take; then another
	// stream is tried. Default: 15 s.
	FirstAnswer time.Duration
	// Linger is how long a name stays subscribed to, and held, that nobody watches. While
	// the service is away nothing is forgotten. Default: 10 min.
	Linger time.Duration
	// MaxNames and MaxBytes bound what is watched and held. Default: 1,000; 64 MiB.
	MaxNames, MaxBytes int
	// Observe is told what happens, for metrics. It must not block. Default: nobody.
	Observe func(Event)
	// Log never gets a key or a token. Default: silent.
	Log *slog.Logger
}

// Event is what happened; fit for a metric's label.
type Event string

// The events.
const (
	Connected Event = "connected" // the service answered on a new stream
	Failed    Event = "failed"    // a stream could not be had, or broke
	Taken     Event = "taken"     // a secret is held, new or changed
	Refused   Event = "refused"   // a secret was malformed; what was held stays
	Removed   Event = "removed"   // the service does not know a name, or took it away
)

// Events are all of them.
var Events = []Event{Connected, Failed, Taken, Refused, Removed}

func (c Config) checked() (Config, error) {
	host, _, err := net.SplitHostPort(c.Address)
	switch {
	case err != nil || host == "":
		return c, fmt.Errorf("gateway: Config.Address is %.256q; write host:port", c.Address)
	case c.NodeID == "":
		return c, errors.New("gateway: Config.NodeID is empty; a stream of ADS needs one")
	case c.Secrets == nil:
		return c, errors.New("gateway: Config.Secrets is required")
	}
	if err := c.checkServer(); err != nil {
		return c, err
	}
	for _, f := range []struct {
		field *string
		value string
	}{{&c.ServerName, host}, {&c.Certificate, "default"}, {&c.Roots, "ROOTCA"}} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
	return c.orDefaults(), nil
}

func (c Config) orDefaults() Config {
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if c.FirstAnswer == 0 {
		c.FirstAnswer = 15 * time.Second
	}
	if c.Linger == 0 {
		c.Linger = 10 * time.Minute
	}
	if c.MaxNames == 0 {
		c.MaxNames = 1000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
