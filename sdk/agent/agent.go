// Package agent is the entry point for embedders. It connects the engine that obtains and
// rotates secrets to an SDS server on a Unix socket and, optionally, to a SPIFFE Workload
// API socket and a socket for gateway Envoys. Call [Run], or [New] if you also need the
// secrets or their status. The package reads no flags, environment or files and has no
// globals, so a process may run several agents. An Agent's fields are fixed; its servers
// and engines own their state and goroutines.
//
// Embedders configure everything in [Config]: certificate names in Identity of
// [secret.Spec], the credential in Token of [secret.Authority], allowed peers in Policy of
// [sds.Config], other sources in Sources, metrics in both Observe fields, and Log.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/revocation"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/trace"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// Config describes an agent.
type Config struct {
	// Secrets are the names to serve; Authorities sign them.
	Secrets     []secret.Spec
	Authorities []secret.Authority
	// Sources are asked before the authorities, in order, for the names they know, such as
	// those of mounted files. The agent's status includes that of a source with a Status
	// method like [secret.Manager]'s. The caller closes them.
	Sources []secret.Source
	// Revocation adds revocation lists to trust bundles, and renews key pairs in their Chains that are
	// revoked. Experimental. The agent sets its Renew, Observe and Log.
	// Default: none.
	Revocation revocation.Config
	// Identities makes this an agent of many identities. Experimental. Each stream gets the certificate
	// that its own credential is entitled to. The agent sets its Manager, Observe and Log.
	// Secrets may then hold only trust bundles and Sources must be empty, as every stream
	// would share their key pairs. Default: all streams share the same secrets.
	Identities *identities.Config
	// OnDemand makes this an agent of names that no secret lists: a client's request for one starts its
	// order, if a rule has it. Experimental. The agent sets its Manager, Reserved, Observe and Log. It cannot be
	// combined with Identities. Default: none.
	OnDemand *ondemand.Config
	// Socket is the SDS socket, with its policy and hooks. Its Log defaults to the
	// agent's. With an empty Path there is no SDS socket: the agent obtains the secrets all the
	// same, for its other sockets and [Agent.Secrets].
	Socket sds.Config
	// Gateway is a second socket that serves secrets from a discovery service. Default:
	// none.
	Gateway Gateway
	// WorkloadAPI serves secrets over the SPIFFE Workload API at its Path, beside SDS; on the
	// same socket if that has the same path. Its Policy is Socket's; its Log defaults to the
	// agent's. With Identities, it needs Callers, whose Sessions the agent sets. Default: off.
	WorkloadAPI workloadapi.Config
	// DrainTimeout is how long streams may take to end once Run's context has ended.
	// Default: 5 s.
	DrainTimeout time.Duration
	// Storage keeps secrets across a restart, and Keys makes their keys; see
	// [secret.Config]. Default: nothing is kept, and keys are made in memory.
	Storage secret.Storage
	Keys    secret.KeySource
	// Tracer follows each attempt to get a certificate; see [secret.Config]. Default: none.
	Tracer trace.Tracer
	// Observe receives secret events, for metrics; see [secret.Config]. Default: none.
	Observe func(secret.Event)
	// Log receives no key and no token. Default: [slog.Default].
	Log *slog.Logger
}

// Agent holds secrets and serves them. Its methods are safe for concurrent use.
type Agent struct {
	drain      time.Duration
	sources    []secret.Source // the Manager is last
	secrets    *secret.Manager
	revocation *revocation.Set
	identities *identities.Set // nil if all streams share the same secrets
	onDemand   *ondemand.Set   // nil for none
	relay      *relay          // nil without a gateway socket

	adding  sync.Mutex
	servers []Server
}

// Server is one of the agent's sockets. Its methods are safe for concurrent use.
type Server interface {
	// Serve answers until Close and then returns nil.
	Serve() error
	// Close ends the streams, waits until its context ends for connections to close, and removes the
	// socket. It may be called twice.
	Close(context.Context) error
	// Streams returns how many streams and fetches are open.
	Streams() int
	// SocketErr returns why no client can connect, or nil.
	SocketErr() error
}

// New checks cfg, opens the sockets and begins to obtain the secrets. Call [Agent.Run] to
// serve them, or else [Agent.Close]. An error names the secret, authority or socket that
// failed, and why; New then leaves nothing behind.
func New(cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.checkIdentities(cfg.Secrets), cfg.checkGateway()); err != nil {
		return nil, err
	}
	// Sockets first: if one is taken, no authority is contacted.
	a := &Agent{drain: cfg.DrainTimeout}
	source, sessions := &lateSource{agent: a}, &lateSessions{}
	if cfg.Identities != nil {
		cfg.Socket.Sessions = sessions
		cfg.WorkloadAPI.Callers = withSessions(cfg.WorkloadAPI.Callers, sessions)
	}
	upstream, err := a.listen(cfg, source)
	if err != nil {
		return nil, errors.Join(err, a.closeServers(context.Background()))
	}
	secrets, err := secret.New(secret.Config{
		Secrets: cfg.Secrets, Authorities: cfg.Authorities, Storage: cfg.Storage, Keys: cfg.Keys, Tracer: cfg.Tracer, Observe: cfg.Observe, Log: cfg.Log,
		RootAcknowledged: a.rootAcknowledged,
	})
	if err != nil {
		return nil, errors.Join(err, a.closeServers(context.Background()))
	}
	a.secrets, a.sources = secrets, append(slices.Clone(cfg.Sources), secrets)
	if err := a.serveOnDemand(cfg); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if a.revocation, err = a.newRevocation(cfg); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	source.Source = a.Secrets()
	if upstream != nil {
		a.relay = startRelay(upstream)
	}
	if cfg.Identities == nil {
		return a, nil
	}
	if a.identities, err = cfg.newIdentities(secrets); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	source.Source, sessions.Set = a.revocation.Over(a.identities), a.identities
	return a, nil
}

func (a *Agent) newRevocation(c Config) (*revocation.Set, error) {
	cfg := c.Revocation
	cfg.Renew, cfg.Observe, cfg.Log = a.Renew, c.Observe, c.Log
	return revocation.New(cfg, secret.First(a.sources...))
}

// checkIdentities rejects what streams would share in an agent of many identities.
func (c Config) checkIdentities(secrets []secret.Spec) error {
	if c.Identities == nil {
		if c.WorkloadAPI.Callers != nil {
			return errors.New("agent: WorkloadAPI.Callers needs Identities")
		}
		return nil
	}
	for _, s := range secrets {
		if s.Kind == secret.KeyPair {
			return fmt.Errorf("agent: secret %q is a key pair, and in an agent of many identities each stream has its own", s.Name)
		}
	}
	if len(c.Sources) > 0 {
		return errors.New("agent: extra sources are not supported with multiple identities: all callers would share their secrets")
	}
	if c.OnDemand != nil {
		return errors.New("agent: OnDemand is not supported with multiple identities: all callers would share its key pairs")
	}
	if c.WorkloadAPI.Path != "" && c.WorkloadAPI.Callers == nil {
		return errors.New("agent: in an agent of many identities, the Workload API needs Callers, as its calls bring no token")
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Log = cmp.Or(c.Log, slog.Default())
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 5*time.Second)
	c.Socket.Log = cmp.Or(c.Socket.Log, c.Log)
	c.WorkloadAPI.Log = cmp.Or(c.WorkloadAPI.Log, c.Log)
	c.Gateway.Socket.Log = cmp.Or(c.Gateway.Socket.Log, c.Log)
	c.Gateway.Service.Log = cmp.Or(c.Gateway.Service.Log, c.Log)
	c.WorkloadAPI.Policy, c.Gateway.Socket.Policy = c.Socket.Policy, c.Socket.Policy
	return c
}

// listen opens the sockets. On error, a.servers has those that are open.
func (a *Agent) listen(cfg Config, source secret.Source) (*gateway.Client, error) {
	shared := cfg.WorkloadAPI.Path != "" && cfg.WorkloadAPI.Path == cfg.Socket.Path
	if shared {
		cfg.Socket.Beside = besideSDS(cfg.WorkloadAPI, source)
	}
	if cfg.Socket.Path != "" {
		server, err := sds.Listen(cfg.Socket, source)
		if err != nil {
			return nil, err
		}
		a.servers = append(a.servers, server)
	}
	if cfg.WorkloadAPI.Path != "" && !shared {
		server, err := workloadapi.Listen(cfg.WorkloadAPI, source)
		if err != nil {
			return nil, err
		}
		a.servers = append(a.servers, server)
	}
	return a.listenGateway(cfg, source)
}

// besideSDS makes the service of a Workload API for the socket of SDS.
func besideSDS(cfg workloadapi.Config, source secret.Source) func(func(context.Context) (secret.Caller, error)) (sds.Companion, error) {
	return func(admit func(context.Context) (secret.Caller, error)) (sds.Companion, error) {
		return workloadapi.NewService(workloadapi.ServiceConfig{Offer: cfg.Offer, Secrets: source, Admit: admit, Callers: cfg.Callers, Log: cfg.Log})
	}
}

func (c Config) newIdentities(secrets *secret.Manager) (*identities.Set, error) {
	cfg := *c.Identities
	cfg.Manager, cfg.Observe, cfg.Log = secrets, c.Observe, c.Log
	return identities.New(cfg)
}

// serveOnDemand adds the source of names on demand, if there is one, after those of configured names.
func (a *Agent) serveOnDemand(c Config) (err error) {
	if c.OnDemand == nil {
		return nil
	}
	cfg, configured := *c.OnDemand, secret.First(a.sources...)
	cfg.Manager, cfg.Observe, cfg.Log, cfg.Covering = a.secrets, c.Observe, c.Log, configured
	cfg.Reserved = func(name string) bool {
		if c.OnDemand.Reserved != nil && c.OnDemand.Reserved(name) {
			return true
		}
		_, err := configured.Peek(secret.Caller{}, name)
		return !errors.Is(err, secret.ErrUnknown)
	}
	if a.onDemand, err = ondemand.New(cfg); err == nil {
		a.sources = append(a.sources, a.onDemand)
	}
	return err
}

// lateSource and lateSessions are set after the sockets are open and before they serve.
type (
	lateSource struct {
		secret.Source
		agent *Agent
	}
	lateSessions struct{ *identities.Set }
)

// withSessions returns the Callers of a Workload API with their sessions; nil for none.
func withSessions(c *workloadapi.Callers, sessions workloadapi.Sessions) *workloadapi.Callers {
	if c == nil {
		return nil
	}
	with := *c
	with.Sessions = sessions
	return &with
}

// Status reports to the health service of the sockets what is held.
func (s *lateSource) Status() []secret.Status { return s.agent.Status() }

// Run creates an agent and serves until ctx ends, then returns nil; see [New] and
// [Agent.Run]. An error comes from the configuration or a socket.
func Run(ctx context.Context, cfg Config) error {
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
