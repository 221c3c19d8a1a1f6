// Package broker (experimental) serves the SPIFFE Broker API: components that act on behalf of
// workloads, such as node proxies, get the X.509-SVIDs, JWT-SVIDs and bundles of the workloads that
// they refer to. Call [Listen] with the brokers, a [Resolver] for each type of reference, and the
// sessions of a set of identities; then [Server.Serve]. The replies are those of package workloadapi.
//
// The protocol: https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Broker_API.md and
// SPIFFE_Broker_Endpoint.md, which are incubating.
package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// Reference is a type of references to workloads, the full name of its message.
type Reference string

// The types that the standard defines (SPIFFE Broker API, section 4).
const (
	PID        Reference = "spiffe.broker.WorkloadPIDReference"
	Kubernetes Reference = "spiffe.broker.KubernetesObjectReference"
)

// Broker is a component that may act on behalf of workloads.
type Broker struct {
	// SPIFFEID is that of its certificate. Required.
	SPIFFEID string
	// References are the types that it may use. Required.
	References []Reference
}

// Resolver resolves references of one type. It is safe for concurrent use.
type Resolver interface {
	// Resolve returns the workload of a reference and holds it until Release. It calls ended, once at
	// most and from any goroutine, when the workload ends or is no longer the one that was referred to;
	// also before it returns. An error of [Refuse] is final for the reference; any other one means that
	// the workload cannot be resolved at the moment.
	Resolve(ctx context.Context, reference *anypb.Any, ended func(error)) (Workload, error)
}

// Numbered is a [Resolver] of references that can all be tried, such as PIDs. A broker may try as many
// that do not exist as takes it three hours for all, after 128 at once. With other resolvers it is one
// a second.
type Numbered interface {
	// Numbers returns how many references there are. It must not block.
	Numbers() int
}

// Workload is a workload that a [Resolver] holds.
type Workload struct {
	// SPIFFEID is its identity. Required.
	SPIFFEID string
	// Name identifies it in logs and limits, as in "process 1234". Required.
	Name string
	// Check returns why the workload no longer has SPIFFEID, or nil. It is called before each reply, and
	// must not block. Required.
	Check func() error
	// Release ends the hold. Required.
	Release func()
}

// Sessions gives each stream its identity: a Set of package identities.
type Sessions interface {
	JoinAs(peer secret.Caller, spiffeID string) (secret.Caller, error)
	Leave(caller secret.Caller)
}

// Config configures a [Server].
type Config struct {
	// Path of the unix socket, 107 bytes at most. Its folder must not be that of the Workload API
	// (SPIFFE Broker Endpoint, section 3). A missing one is created with mode 0700. Required, unless there
	// is an Address.
	Path string
	// Mode is the mode of the socket file. Default: 0600.
	Mode fs.FileMode
	// Address is a loopback IP and port to listen on instead of Path. Default: none.
	Address string
	// TLS names the certificate of the server and the roots that verify brokers. Its Peer must be unset.
	// Required.
	TLS tlsconfig.Options
	// Brokers are those that are served, until [Server.SetBrokers]. Required.
	Brokers []Broker
	// Resolvers resolve references by their type. Required.
	Resolvers map[Reference]Resolver
	// Sessions and Secrets are where the secrets of the Offer come from. Required.
	Sessions Sessions
	Secrets  secret.Source
	// Offer lists what a workload gets.
	Offer workloadapi.Offer
	// Own is the SPIFFE ID of the server, which no broker gets. Required.
	Own string
	// Observe is called for each outcome, for metrics. It must not block. Default: none.
	Observe func(Outcome)
	// Log is also the audit log: each granted reference, refusals once a minute for each kind. Default:
	// [slog.Default].
	Log *slog.Logger
}

// Outcome is what became of a call.
type Outcome string

// The outcomes. Granted comes when a reference is resolved, Ended when its workload has ended.
const (
	Granted     Outcome = "granted"
	Invalid     Outcome = "invalid"
	NotFound    Outcome = "not-found"
	NotEntitled Outcome = "not-entitled"
	Limited     Outcome = "limited"
	Unavailable Outcome = "unavailable"
	Ended       Outcome = "ended"
)

// Outcomes returns all of them.
func Outcomes() []Outcome {
	return []Outcome{Granted, Invalid, NotFound, NotEntitled, Limited, Unavailable, Ended}
}

func (c Config) check() error {
	switch {
	case (c.Path == "") == (c.Address == ""):
		return errors.New("broker: Config needs Path or Address, one of them")
	case c.TLS.Peer != nil:
		return errors.New("broker: Config.TLS.Peer follows from Brokers; leave it unset")
	case c.Sessions == nil || c.Secrets == nil || c.Own == "":
		return errors.New("broker: Config needs Sessions, Secrets and Own")
	}
	if c.Address != "" {
		if at, err := netip.ParseAddrPort(c.Address); err != nil || !at.Addr().IsLoopback() {
			return fmt.Errorf("broker: invalid Config.Address %.256q: write a loopback IP and a port, such as 127.0.0.1:8444", c.Address)
		}
	}
	return nil
}

func checkBrokers(brokers []Broker, resolvers map[Reference]Resolver) error {
	if len(brokers) == 0 {
		return errors.New("broker: Brokers is empty; name those to serve")
	}
	seen := map[string]bool{}
	for _, b := range brokers {
		if _, err := pki.ParseSPIFFEID(b.SPIFFEID); err != nil {
			return fmt.Errorf("broker: Brokers: %w", err)
		}
		if seen[b.SPIFFEID] {
			return fmt.Errorf("broker: Brokers has %s twice", b.SPIFFEID)
		}
		seen[b.SPIFFEID] = true
		if len(b.References) == 0 {
			return fmt.Errorf("broker: Brokers: %s has no References", b.SPIFFEID)
		}
		for _, r := range b.References {
			if resolvers[r] == nil {
				return fmt.Errorf("broker: Resolvers has none for %s, which %s may use", r, b.SPIFFEID)
			}
		}
	}
	return nil
}
