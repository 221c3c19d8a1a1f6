// Package gateway (experimental) fetches a gateway's secrets from a discovery service (istiod or
// countersign-discovery) and holds them. The agent creates a [Client] with [New], runs
// [Client.Run] and uses the client as the resource source of an SDS socket. If the service goes
// away, the client keeps serving what it holds.
//
// Run's goroutine owns the one stream to the service, incremental ADS, however many Envoys
// connect. State of the world would resend the whole list for every name added and
// everything after each reconnect, and could not distinguish a name that is unknown or no
// longer allowed from one that is not ready; both services support incremental ADS.
//
// The service is trusted with the secrets but with nothing else on the machine: only inline
// bytes are accepted, because for other data sources Envoy would read the named file or
// variable.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/countersign-dev/countersign/internal/transport"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config configures a client.
type Config struct {
	// Address of the service, host:port. TLS 1.2 or later is required. Required.
	Address string
	// ServerName is the DNS name expected in the service's certificate. Default: the
	// host of Address.
	ServerName string
	// ServerSPIFFEID is the only URI expected in the service's certificate, instead of
	// a DNS name: istiod's own has none. Default: ServerName applies.
	ServerSPIFFEID string
	// NodeID is sent to the service, which authorizes by credential and not by it. Required.
	NodeID string
	// Cluster is the cluster the gateway claims to be in: the metadata key "clusterid"
	// and the node's CLUSTER_ID. Default: none.
	Cluster string
	// Secrets supplies the key pair Certificate that authenticates the gateway, and the trust bundle
	// Roots that verifies the service. Required; the names default to "default" and "ROOTCA".
	Secrets            secret.Source
	Certificate, Roots string
	// RootFile is a PEM file used instead of Roots, read for each connection.
	RootFile string
	// Token returns the token to send while there is no certificate; TokenRejected
	// receives one that the service rejected. Default: none.
	Token         func(context.Context) (ca.Bearer, error)
	TokenRejected func(ca.Token)
	// Dial opens the connection underneath TLS. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// FirstAnswer is how long to wait for a silent service before trying another
	// stream. Default: 15 s.
	FirstAnswer time.Duration
	// Linger is how long an unwatched name stays subscribed and held. Nothing is
	// dropped while the service is away. Default: 10 min.
	Linger time.Duration
	// MaxNames and MaxBytes limit what is watched and held. Default: 1,000; 64 MiB.
	MaxNames, MaxBytes int
	// Observe receives events, for metrics. It must not block. Default: none.
	Observe func(Event)
	// Log never receives a key or a token. Default: [slog.Default].
	Log *slog.Logger
}

// Event is a kind of event, usable as a metric label.
type Event string

// The events.
const (
	Connected Event = "connected" // the service answered on a new stream
	Failed    Event = "failed"    // a stream failed to open, or broke
	Taken     Event = "taken"     // a new or changed secret was stored
	Refused   Event = "refused"   // a secret was malformed; the previous one stays
	Removed   Event = "removed"   // the service does not know a name, or removed it
)

// Events lists all events.
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
			return transport.Dial(ctx, "tcp", address)
		}
	}
	c.FirstAnswer = cmp.Or(c.FirstAnswer, 15*time.Second)
	c.Linger = cmp.Or(c.Linger, 10*time.Minute)
	c.MaxNames = cmp.Or(c.MaxNames, 1000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}
