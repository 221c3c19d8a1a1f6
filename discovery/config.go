package discovery

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Config configures a server. Types and Authenticator are required.
type Config struct {
	// Types lists what is served. Whatever their order here, they are pushed in Envoy's order:
	// clusters, endpoints, listeners, routes, secrets, then the rest as given. Required.
	Types []Type
	// Authenticator identifies callers ([authn.Ordered]). Required.
	Authenticator authn.Authenticator
	// TLS holds the server's certificate, in GetCertificate if it rotates; tlsconfig
	// Options without a Peer produce a suitable one. Its client certificate settings
	// are ignored because the Authenticator verifies client certificates. TLS 1.2 or
	// later. Required with a TLS listener.
	TLS *tls.Config
	// AllowTokenOverPlaintext accepts tokens on the plaintext listener, where an
	// eavesdropper can read and reuse them. Default: false; no caller can authenticate
	// there.
	AllowTokenOverPlaintext bool
	// Clusters maps a trust domain to the clusters its members may claim. A trust
	// domain not listed may claim only LocalCluster.
	Clusters map[string][]string
	// IssuerClusters maps the issuer of JWTs to the clusters their subjects may claim, in
	// place of their trust domain's: it may sign for only one of several clusters.
	IssuerClusters map[string][]string
	// LocalCluster is the cluster of callers that claim none.
	LocalCluster string
	// Ready returns nil, or why streams cannot be served yet. It is called for each new
	// stream and must not block. Default: ready at once.
	Ready func() error
	// Limits and Times bound the resources a client may use.
	Limits Limits
	Times  Times
	// Observe receives stream events. It must not block. Default: none.
	Observe func(xds.Event[*Caller])
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log never receives a token or a key. Default: [slog.Default].
	Log *slog.Logger
}

// Limits are counts and sizes. Exceeding one ends in ResourceExhausted, for a node in
// InvalidArgument; an excess connection is closed.
type Limits struct {
	// Connections of all clients, and of one address; for IPv6, a network of 64 bits is
	// one address. Default: 20,000 and 2,000.
	Connections, ConnectionsOfAddress int
	// Authentications are the streams being authenticated, of all clients and of one
	// address, and the connections on which no stream was authenticated yet. Each may hold a
	// token of 16 KiB. Default: 1,000 and 600.
	Authentications, AuthenticationsOfAddress int
	// Streams of all clients, of one identity in one cluster, and of one connection
	// (Envoy opens one per secret over SDS). Default: 20,000, 2,000 and 1,000.
	Streams, StreamsOfIdentity, StreamsOfConnection int
	// Message is the maximum size of a request in bytes. Default: 4 MiB.
	Message int
	// Metadata is the maximum size of a node's metadata in bytes. Default: 64 KiB.
	Metadata int
	// Names bounds what a stream may request; a node id is always required.
	Names xds.Limits
}

// Times are timeouts and intervals.
type Times struct {
	// Handshake is how long a connection may take to speak HTTP/2. It is closed unless a stream
	// was authenticated within Handshake and Authenticate. Default: 10 s.
	Handshake time.Duration
	// Authenticate is how long authentication may take. Default: 10 s.
	Authenticate time.Duration
	// FirstRequest is how long a new stream may stay silent. Default: 30 s.
	FirstRequest time.Duration
	// Lifetime of a stream, varied by 10 % so that streams opened together do not
	// reconnect together. Default: 1 h.
	Lifetime time.Duration
	// Drain is how long a stopping server takes to end all streams. Default: 10 s;
	// negative: at once.
	Drain time.Duration
	// PingEvery is how long a client may be idle before it is pinged, PingTimeout how
	// long it may take to answer. Default: 30 s and 10 s.
	PingEvery, PingTimeout time.Duration
	// PingAtMost is the minimum interval between a client's pings; a client that pings
	// more often is disconnected. Default: 10 s.
	PingAtMost time.Duration
	// Idle is how long a connection without streams is kept. Default: 5 min.
	Idle time.Duration
}

// checked validates the config and returns it with defaults applied.
func (c Config) checked() (Config, error) {
	if err := c.fault(); err != nil {
		return c, err
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.Observe == nil {
		c.Observe = func(xds.Event[*Caller]) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Limits, c.Times = c.Limits.orDefaults(), c.Times.orDefaults()
	return c, nil
}

// fault returns an error for an invalid config.
func (c Config) fault() error {
	if c.Authenticator == nil {
		return errors.New("discovery: Config.Authenticator is required")
	}
	for field, lists := range map[string]map[string][]string{"Clusters": c.Clusters, "IssuerClusters": c.IssuerClusters} {
		for of, clusters := range lists {
			if len(clusters) == 0 || slices.Contains(clusters, "") {
				return fmt.Errorf("discovery: Config.%s[%q] must list one or more clusters, none of them empty", field, of)
			}
		}
	}
	seen := map[string]bool{}
	for _, t := range c.Types {
		if seen[t.URL] {
			return fmt.Errorf("discovery: Config.Types has %q twice", t.URL)
		}
		seen[t.URL] = true
	}
	return tlsFault(c.TLS)
}

func tlsFault(c *tls.Config) error {
	switch {
	case c == nil:
	case c.GetConfigForClient != nil:
		return errors.New("discovery: Config.TLS.GetConfigForClient would replace the server's own rules; use GetCertificate")
	case c.GetCertificate == nil && len(c.Certificates) == 0:
		return errors.New("discovery: Config.TLS has neither GetCertificate nor Certificates; the server needs a certificate")
	}
	return nil
}

func (l Limits) orDefaults() Limits {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&l.Connections, 20_000}, {&l.ConnectionsOfAddress, 2000}, {&l.Authentications, 1000}, {&l.AuthenticationsOfAddress, 600}, {&l.Streams, 20_000}, {&l.StreamsOfIdentity, 2000}, {&l.StreamsOfConnection, 1000},
		{&l.Message, 4 << 20}, {&l.Metadata, 64 << 10},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	l.Names.RequireNode = true
	return l
}

func (t Times) orDefaults() Times {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Handshake, 10 * time.Second}, {&t.Authenticate, 10 * time.Second}, {&t.FirstRequest, 30 * time.Second},
		{&t.Lifetime, time.Hour}, {&t.Drain, 10 * time.Second}, {&t.PingEvery, 30 * time.Second},
		{&t.PingTimeout, 10 * time.Second}, {&t.PingAtMost, 10 * time.Second}, {&t.Idle, 5 * time.Minute},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	t.Drain = max(t.Drain, 0)
	return t
}
