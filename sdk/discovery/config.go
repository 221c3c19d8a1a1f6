package discovery

import (
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

// Config is what a server is made of.
type Config struct {
	// Types are served, pushed in Envoy's order whatever theirs is here: clusters,
	// endpoints, listeners, routes, secrets, then the others as they stand. Required.
	Types []Type
	// Authenticator tells who a caller is ([authn.Ordered]). Required.
	Authenticator authn.Authenticator
	// TLS has the server's certificate, by GetCertificate where it rotates; Options
	// without a Peer make one that fits (package tlsconfig). Whom the client's
	// certificate names is for the Authenticator to verify, so what this says of client
	// certificates is not looked at. TLS 1.2 at least. Required with a TLS listener.
	TLS *tls.Config
	// AllowTokenOverPlaintext takes tokens on the plaintext listener, where whoever
	// listens on the way can read and use them. Default: false, and nobody can be
	// authenticated there.
	AllowTokenOverPlaintext bool
	// Clusters says, by trust domain, which clusters its members may claim to be in.
	// One that is not in it may claim LocalCluster only.
	Clusters map[string][]string
	// LocalCluster is the cluster of a caller that claims none.
	LocalCluster string
	// Ready returns nil, or why streams cannot be answered yet. It is called for each
	// stream that comes and must not block. Default: ready at once.
	Ready func() error
	// Limits and Times bound what a client may take.
	Limits Limits
	Times  Times
	// Observe is told what happens on streams. It must not block. Default: nobody.
	Observe func(xds.Event[*Caller])
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log never gets a token or a key. Default: silent.
	Log *slog.Logger
}

// Limits are counts and sizes. What is beyond them is refused with ResourceExhausted, a
// node with InvalidArgument; a connection is closed.
type Limits struct {
	// Connections of all clients. Default: 20,000.
	Connections int
	// Streams of all clients, those of one identity, and those of one connection (Envoy
	// has one for each secret where it speaks SDS). Default: 20,000, 2,000 and 1,000.
	Streams, StreamsOfIdentity, StreamsOfConnection int
	// Message is the size of a request in bytes. Default: 4 MiB.
	Message int
	// Metadata is the size of a node's metadata in bytes. Default: 64 KiB.
	Metadata int
	// Names bound what a stream asks for; a node id is required always.
	Names xds.Limits
}

// Times are how long things may take.
type Times struct {
	// Handshake of a connection until it speaks HTTP/2. Default: 10 s.
	Handshake time.Duration
	// Authenticate is how long it may take to tell who a caller is. Default: 10 s.
	Authenticate time.Duration
	// FirstRequest is how long a stream may say nothing at first. Default: 30 s.
	FirstRequest time.Duration
	// Lifetime of a stream, 10 % more or less, so that streams that came together do not
	// come again together. Default: 1 h.
	Lifetime time.Duration
	// Drain is how long it takes until all streams were ended when the server is to
	// stop. Default: 10 s; negative: at once.
	Drain time.Duration
	// PingEvery is after how long a quiet client is asked whether it is there, and
	// PingTimeout how long it may take to answer. Default: 30 s and 10 s.
	PingEvery, PingTimeout time.Duration
	// PingAtMost is how often a client may ask that; one that asks more often is sent
	// away. Default: every 10 s.
	PingAtMost time.Duration
	// Idle is how long a connection without a stream is kept. Default: 5 min.
	Idle time.Duration
}

// checked returns the config with its defaults filled in.
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
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Limits, c.Times = c.Limits.orDefaults(), c.Times.orDefaults()
	return c, nil
}

// fault says what is wrong with a config.
func (c Config) fault() error {
	if c.Authenticator == nil {
		return errors.New("discovery: Config.Authenticator is required; without it nobody is known")
	}
	for domain, clusters := range c.Clusters {
		if len(clusters) == 0 || slices.Contains(clusters, "") {
			return fmt.Errorf("discovery: Config.Clusters[%q] needs one cluster or more, none of them empty", domain)
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
		{&l.Connections, 20_000}, {&l.Streams, 20_000}, {&l.StreamsOfIdentity, 2000}, {&l.StreamsOfConnection, 1000},
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
