package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/revocation"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Secrets returns the source of the agent's secrets; use it until Close.
func (a *Agent) Secrets() secret.Source { return a.revocation.Over(secret.First(a.sources...)) }

// Status returns the state of every secret, sorted by name.
func (a *Agent) Status() []secret.Status {
	var parts [][]secret.Status
	for _, source := range a.sources {
		if s, ok := source.(interface{ Status() []secret.Status }); ok {
			parts = append(parts, s.Status())
		}
	}
	all := slices.Concat(parts...)
	slices.SortStableFunc(all, func(a, b secret.Status) int { return strings.Compare(a.Name, b.Name) })
	return a.revocation.Complete(all)
}

// Ready returns the names of the secrets that are not held, sorted. If there are none, the
// agent is ready.
func (a *Agent) Ready() []string {
	var missing []string
	for _, s := range a.Status() {
		if !s.Held {
			missing = append(missing, s.Name)
		}
	}
	return missing
}

// SocketErr returns why no client can connect to one of the sockets, or nil. An agent listens again
// when a socket's file was removed.
func (a *Agent) SocketErr() error {
	var errs []error
	for _, server := range a.sockets() {
		errs = append(errs, server.SocketErr())
	}
	return errors.Join(errs...)
}

// Streams returns the number of open streams and fetches on all sockets.
func (a *Agent) Streams() int {
	n := 0
	for _, server := range a.sockets() {
		n += server.Streams()
	}
	return n
}

// rootAcknowledged asks all sockets that serve Envoys; see [secret.Config].
func (a *Agent) rootAcknowledged(bundles []string, root string) bool {
	return !slices.ContainsFunc(a.sockets(), func(s Server) bool {
		told, ok := s.(interface{ RootAcknowledged([]string, string) bool })
		return ok && !told.RootAcknowledged(bundles, root)
	})
}

// Identities returns the counts of an agent of many identities; false for any other.
// Experimental.
func (a *Agent) Identities() (identities.Counts, bool) {
	if a.identities == nil {
		return identities.Counts{}, false
	}
	return a.identities.Counts(), true
}

// Workloads returns the identities of an agent of many, and the source of their secrets, revocation
// lists included, for the callers that they return; nil for any other agent. Experimental.
func (a *Agent) Workloads() (*identities.Set, secret.Source) {
	if a.identities == nil {
		return nil, nil
	}
	return a.identities, a.revocation.Over(a.identities)
}

// OnDemand returns the state of the names on demand; false for an agent without. Experimental.
func (a *Agent) OnDemand() (ondemand.Status, bool) {
	if a.onDemand == nil {
		return ondemand.Status{}, false
	}
	return a.onDemand.Status(), true
}

// SetOnDemand replaces the rules of an agent with Config.OnDemand, all or none; see
// [ondemand.Set.Apply]. Experimental.
func (a *Agent) SetOnDemand(rules []ondemand.Rule) error {
	if a.onDemand == nil {
		return errors.New("agent: Config.OnDemand is not set")
	}
	return a.onDemand.Apply(rules)
}

// Due reports whether an authority is to sign a key pair now; see [secret.Manager.Due].
func (a *Agent) Due(authority string) (ends time.Time, due bool) { return a.secrets.Due(authority) }

// Reload replaces the secrets and authorities, all or none, and leaves unchanged ones
// alone; see [secret.Manager.Reload], also for errors.
func (a *Agent) Reload(secrets []secret.Spec, authorities []secret.Authority) error {
	if err := a.checkShared(secrets); err != nil {
		return err
	}
	defer a.kick("")
	return a.secrets.Reload(secrets, authorities)
}

// Check returns the error of a Reload now, and changes nothing.
func (a *Agent) Check(secrets []secret.Spec, authorities []secret.Authority) error {
	if err := a.checkShared(secrets); err != nil {
		return err
	}
	return a.secrets.Check(secrets, authorities)
}

// SetAuthority replaces the client and the rules of one authority in one step; see
// [secret.Manager.SetAuthority].
func (a *Agent) SetAuthority(authority secret.Authority) error {
	defer a.kick(authority.Name)
	return a.secrets.SetAuthority(authority)
}

func (a *Agent) checkShared(secrets []secret.Spec) error {
	if a.identities == nil {
		return nil
	}
	return Config{Identities: &identities.Config{}}.checkIdentities(secrets)
}

// kick repeats failed attempts beside those of the Manager.
func (a *Agent) kick(authority string) {
	if a.identities != nil {
		a.identities.Kick()
	}
	if a.onDemand != nil {
		a.onDemand.Kick(authority)
	}
}

// SetRevocation replaces the trust bundles with revocation lists; see [revocation.Set.Reload].
// Experimental.
func (a *Agent) SetRevocation(bundles []revocation.Bundle) error { return a.revocation.Reload(bundles) }

// SetPolicy sets which peers the sockets serve; see [sds.Server.SetPolicy].
func (a *Agent) SetPolicy(p sds.Policy) int {
	n := 0
	for _, server := range a.sockets() {
		if bound, ok := server.(interface{ SetPolicy(sds.Policy) int }); ok {
			n += bound.SetPolicy(p)
		}
	}
	return n
}

// Add has [Agent.Run] serve a further socket, beside those of the Config, and [Agent.Close] close it.
// Call it before Run. The policy of the other sockets does not count for it.
func (a *Agent) Add(server Server) {
	a.adding.Lock()
	defer a.adding.Unlock()
	a.servers = append(slices.Clone(a.servers), server)
}

// sockets returns the agent's sockets.
func (a *Agent) sockets() []Server {
	a.adding.Lock()
	defer a.adding.Unlock()
	return a.servers
}

// Renew requests a new key and certificate for a secret now; see [secret.Manager.Renew].
func (a *Agent) Renew(name string) error { return a.secrets.Renew(secret.Caller{}, name) }

// Retry repeats an authority's failed attempts at once, and asks for its revocation lists. Call it when the provider, token
// or settings have changed. An empty name means all authorities.
func (a *Agent) Retry(authority string) {
	a.secrets.Kick(authority)
	a.revocation.Retry(authority)
	a.kick(authority)
}

// Run serves until ctx ends, then closes the agent as [Agent.Close] does. It returns nil
// if ctx ended it, and an error if a socket failed. Call it once.
func (a *Agent) Run(ctx context.Context) error {
	servers := a.sockets()
	served := make(chan error, len(servers))
	for _, server := range servers {
		go func() { served <- server.Serve() }()
	}
	left := len(servers)
	var errs []error
	select {
	case <-ctx.Done():
	case err := <-served: // a listener failed
		errs, left = append(errs, err), left-1
	}
	errs = append(errs, a.Close())
	for range left {
		errs = append(errs, <-served)
	}
	return errors.Join(errs...)
}

// Close stops the agent in this order; Run then returns, too:
//
//  1. It ends the streams with Unavailable, so that clients reconnect to a successor, and
//     accepts no new ones. It cuts connections still open after DrainTimeout.
//  2. It removes the socket files and ends the stream to a discovery service.
//  3. It cancels requests to authorities and watches of roots. After a second it abandons
//     a client that ignores this.
//  4. It notifies watchers; [Agent.Secrets] then returns [secret.ErrClosed].
//
// After that the agent calls no hook. The caller may now close the Clients, Token sources
// and Sources of the Config. Close is idempotent and safe for concurrent use.
func (a *Agent) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), a.drain)
	defer cancel()
	err := a.closeServers(ctx)
	a.relay.close()
	if a.identities != nil {
		err = errors.Join(err, a.identities.Close())
	}
	if a.onDemand != nil {
		err = errors.Join(err, a.onDemand.Close())
	}
	a.revocation.Close()
	return errors.Join(err, a.secrets.Close())
}

// closeServers closes all sockets at the same time, so that they share the drain timeout.
func (a *Agent) closeServers(ctx context.Context) error {
	servers := a.sockets()
	closed := make(chan error, len(servers))
	for _, server := range servers {
		go func() { closed <- server.Close(ctx) }()
	}
	var errs []error
	for range servers {
		errs = append(errs, <-closed)
	}
	return errors.Join(errs...)
}
