// Package agent is the door for embedders: it wires the engine that obtains and
// rotates secrets to the SDS server on a unix socket. Call [Run], or [New] where
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
	// DrainTimeout is how long the streams may take to end when Run's context
	// does. Default: 5 s.
	DrainTimeout time.Duration
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
}

// New checks the configuration, takes the socket, and begins to obtain the
// secrets. [Agent.Run] serves them; whoever does not call it calls [Agent.Close].
func New(cfg Config) (*Agent, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 5 * time.Second
	}
	if cfg.Socket.Log == nil {
		cfg.Socket.Log = cfg.Log
	}
	// The socket first: nothing is asked of an authority where it is somebody else's.
	source := &lateSource{}
	server, err := sds.Listen(cfg.Socket, source)
	if err != nil {
		return nil, err
	}
	secrets, err := secret.New(secret.Config{
		Secrets: cfg.Secrets, Authorities: cfg.Authorities, Observe: cfg.Observe, Log: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, server.Close(context.Background()))
	}
	sources := append(slices.Clone(cfg.Sources), secrets)
	source.Source = secret.First(sources...)
	return &Agent{drain: cfg.DrainTimeout, sources: sources, secrets: secrets, server: server}, nil
}

// lateSource is filled in after the socket is taken and before it is served.
type lateSource struct{ secret.Source }

// Run makes an agent and serves until ctx ends; see [New] and [Agent.Run].
func Run(ctx context.Context, cfg Config) error {
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
