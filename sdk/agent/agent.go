// Package agent is the door for embedders: it wires the engine that obtains and
// rotates secrets to the SDS server on a unix socket and, where it is wanted, to the
// SPIFFE Workload API on another. Call [Run], or [New] where
// the secrets or their status are wanted beside it. It reads no flag, no
// environment and no file, and cannot tell a provider's process from a [ca.Client]
// of your own.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

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
	// Socket is where and to whom they are served. Its Log and Observe are the
	// agent's where they are not set.
	Socket sds.Config
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
	drain   time.Duration
	sources []secret.Source // the Manager is the last of them
	secrets *secret.Manager
	server  *sds.Server
	spiffe  *workloadapi.Server // nil: it is off
}

// New checks the configuration, takes the sockets, and begins to obtain the
// secrets. [Agent.Run] serves them; whoever does not call it calls [Agent.Close].
func New(cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	// The sockets first: nothing is asked of an authority where one is somebody else's.
	source := &lateSource{}
	a := &Agent{drain: cfg.DrainTimeout}
	if err := a.listen(cfg, source); err != nil {
		return nil, err
	}
	secrets, err := secret.New(secret.Config{
		Secrets: cfg.Secrets, Authorities: cfg.Authorities, Storage: cfg.Storage, Keys: cfg.Keys, Observe: cfg.Observe, Log: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, a.closeServers(context.Background()))
	}
	a.secrets, a.sources = secrets, append(slices.Clone(cfg.Sources), secrets)
	source.Source = secret.First(a.sources...)
	return a, nil
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
	c.WorkloadAPI.Policy = c.Socket.Policy
	return c
}

// listen takes the sockets, all or none.
func (a *Agent) listen(cfg Config, source secret.Source) (err error) {
	if a.server, err = sds.Listen(cfg.Socket, source); err != nil || cfg.WorkloadAPI.Path == "" {
		return err
	}
	if a.spiffe, err = workloadapi.Listen(cfg.WorkloadAPI, source); err != nil {
		return errors.Join(err, a.server.Close(context.Background()))
	}
	return nil
}

// lateSource is filled in after the sockets are taken and before they are served.
type lateSource struct{ secret.Source }

// Run makes an agent and serves until ctx ends; see [New] and [Agent.Run].
func Run(ctx context.Context, cfg Config) error {
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
