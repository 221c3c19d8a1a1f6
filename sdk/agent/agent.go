// Package agent is the door for embedders: it wires the engine that obtains and
// rotates secrets to the SDS server on a unix socket and, where it is wanted, to the
// SPIFFE Workload API on another, and to a gateway's Envoys on a third. Call [Run], or [New] where
// the secrets or their status are wanted beside it. It reads no flag, no
// environment and no file, keeps nothing global, so that a process may have several,
// and cannot tell a provider's process from a [ca.Client] of your own.
//
// What an embedder decides is in [Config]: whose certificates are asked for in
// Identity of [secret.Spec], the credential in Token of [secret.Authority], who is
// answered in Policy of [sds.Config], where secrets of other kinds come from in Sources,
// metrics in both Observe, and Log.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// Config is what an agent is made of.
type Config struct {
	// Secrets are the names that are served, and Authorities who signs them.
	Secrets     []secret.Spec
	Authorities []secret.Authority
	// Sources are asked before the authorities, in this order, for the names that
	// they know, such as those of mounted files. What has a method Status, as a
	// [secret.Manager] has, is part of the agent's. They stay the caller's to close.
	Sources []secret.Source
	// Identities makes it the agent of many identities: each stream has the certificate that
	// its own credential is good for. Its Manager, Observe and Log are the agent's.
	// Secrets are trust bundles alone then, and there are no Sources: a key pair of
	// theirs would be everybody's. Default: all streams have the same secrets.
	Identities *identities.Config
	// Socket is where and to whom they are served, and who is told of the streams. Its
	// Log is the agent's where it is not set. Its Path may be empty where there is a
	// Gateway: the secrets are obtained all the same.
	Socket sds.Config
	// Gateway is a second socket, with the secrets of a discovery service. Default: none.
	Gateway Gateway
	// WorkloadAPI is where and what of the secrets is served over the SPIFFE Workload
	// API, beside SDS: its Path says where. Its Policy is Socket's, its Log the agent's
	// where it is not set. Default: not at all.
	WorkloadAPI workloadapi.Config
	// DrainTimeout is how long the streams may take to end when Run's context
	// does. Default: 5 s.
	DrainTimeout time.Duration
	// Storage keeps secrets over a restart, and Keys makes their keys; see
	// [secret.Config]. Default: nothing is kept, and keys are made in memory.
	Storage secret.Storage
	Keys    secret.KeySource
	// Observe is told what happens to secrets, for metrics; see [secret.Config].
	// Default: nobody.
	Observe func(secret.Event)
	// Log never gets a key or a token. Default: silent.
	Log *slog.Logger
}

// Agent holds secrets and serves them. Its methods may be called by any number of
// goroutines at once.
type Agent struct {
	drain      time.Duration
	sources    []secret.Source // the Manager is the last of them
	secrets    *secret.Manager
	identities *identities.Set // nil where all streams have the same secrets
	relay      *relay          // nil where there is no gateway's socket
	servers    []server
}

// server is one of the sockets.
type server interface {
	Serve() error
	Close(context.Context) error
	Streams() int
	SetPolicy(sds.Policy) int
}

// New checks the configuration, takes the sockets, and begins to obtain the
// secrets. [Agent.Run] serves them; whoever does not call it calls [Agent.Close]. An
// error says which secret, authority or socket cannot be, and why; nothing is left then.
func New(cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.checkIdentities(cfg.Secrets), cfg.checkGateway()); err != nil {
		return nil, err
	}
	// The sockets first: nothing is asked of an authority where one is somebody else's.
	source, sessions := &lateSource{}, &lateSessions{}
	if cfg.Identities != nil {
		cfg.Socket.Sessions = sessions
	}
	a := &Agent{drain: cfg.DrainTimeout}
	upstream, err := a.listen(cfg, source)
	if err != nil {
		return nil, errors.Join(err, a.closeServers(context.Background()))
	}
	secrets, err := secret.New(secret.Config{
		Secrets: cfg.Secrets, Authorities: cfg.Authorities, Storage: cfg.Storage, Keys: cfg.Keys, Observe: cfg.Observe, Log: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, a.closeServers(context.Background()))
	}
	a.secrets, a.sources = secrets, append(slices.Clone(cfg.Sources), secrets)
	source.Source = secret.First(a.sources...)
	if upstream != nil {
		a.relay = startRelay(upstream)
	}
	if cfg.Identities == nil {
		return a, nil
	}
	if a.identities, err = cfg.newIdentities(secrets); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	source.Source, sessions.Sessions = a.identities, a.identities
	return a, nil
}

// checkIdentities refuses what would be everybody's in an agent of many identities.
func (c Config) checkIdentities(secrets []secret.Spec) error {
	if c.Identities == nil {
		return nil
	}
	for _, s := range secrets {
		if s.Kind == secret.KeyPair {
			return fmt.Errorf("agent: secret %q is a key pair, and in an agent of many identities each stream has its own", s.Name)
		}
	}
	if len(c.Sources) > 0 {
		return errors.New("agent: an agent of many identities has no further sources: their secrets would be everybody's")
	}
	if c.WorkloadAPI.Path != "" {
		return errors.New("agent: an agent of many identities serves no Workload API: its streams bring no credential")
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 5 * time.Second
	}
	if c.Socket.Log == nil {
		c.Socket.Log = c.Log
	}
	if c.WorkloadAPI.Log == nil {
		c.WorkloadAPI.Log = c.Log
	}
	if c.Gateway.Socket.Log == nil {
		c.Gateway.Socket.Log = c.Log
	}
	if c.Gateway.Service.Log == nil {
		c.Gateway.Service.Log = c.Log
	}
	c.WorkloadAPI.Policy, c.Gateway.Socket.Policy = c.Socket.Policy, c.Socket.Policy
	return c
}

// listen takes the sockets; those that it has are in a.servers where it fails.
func (a *Agent) listen(cfg Config, source secret.Source) (*gateway.Client, error) {
	if cfg.Socket.Path != "" || cfg.Gateway.Socket.Path == "" {
		server, err := sds.Listen(cfg.Socket, source)
		if err != nil {
			return nil, err
		}
		a.servers = append(a.servers, server)
	}
	if cfg.WorkloadAPI.Path != "" {
		server, err := workloadapi.Listen(cfg.WorkloadAPI, source)
		if err != nil {
			return nil, err
		}
		a.servers = append(a.servers, server)
	}
	return a.listenGateway(cfg, source)
}

func (c Config) newIdentities(secrets *secret.Manager) (*identities.Set, error) {
	cfg := *c.Identities
	cfg.Manager, cfg.Observe, cfg.Log = secrets, c.Observe, c.Log
	return identities.New(cfg)
}

// lateSource and lateSessions are filled in after the sockets are taken and before they
// are served.
type (
	lateSource   struct{ secret.Source }
	lateSessions struct{ sds.Sessions }
)

// Run makes an agent and serves until ctx ends, and returns nil then; see [New] and
// [Agent.Run]. Any other return is an error of the configuration or of the socket.
func Run(ctx context.Context, cfg Config) error {
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
