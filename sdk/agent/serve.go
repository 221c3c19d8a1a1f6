package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Secrets is where the agent's secrets come from; it may be asked until Close.
func (a *Agent) Secrets() secret.Source { return secret.First(a.sources...) }

// Status returns the state of every secret, sorted by name.
func (a *Agent) Status() []secret.Status {
	var all []secret.Status
	for _, source := range a.sources {
		if s, ok := source.(interface{ Status() []secret.Status }); ok {
			all = append(all, s.Status()...)
		}
	}
	slices.SortStableFunc(all, func(a, b secret.Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Ready returns the names of the secrets that are not held, sorted; empty means ready.
func (a *Agent) Ready() []string {
	var missing []string
	for _, s := range a.Status() {
		if !s.Held {
			missing = append(missing, s.Name)
		}
	}
	return missing
}

// Streams returns how many streams and fetches are open, on all sockets.
func (a *Agent) Streams() int {
	n := 0
	for _, server := range a.servers {
		n += server.Streams()
	}
	return n
}

// Identities returns the numbers of an agent of many identities; false where it is none.
func (a *Agent) Identities() (identities.Counts, bool) {
	if a.identities == nil {
		return identities.Counts{}, false
	}
	return a.identities.Counts(), true
}

// Reload takes over another list of secrets and authorities, whole or not at all, and
// leaves alone what is the same; see [secret.Manager.Reload], also for its errors.
func (a *Agent) Reload(secrets []secret.Spec, authorities []secret.Authority) error {
	if a.identities == nil {
		return a.secrets.Reload(secrets, authorities)
	}
	if err := (Config{Identities: &identities.Config{}}).checkIdentities(secrets); err != nil {
		return err
	}
	defer a.identities.Kick()
	return a.secrets.Reload(secrets, authorities)
}

// SetPolicy says from now on which peers the sockets answer; see
// [sds.Server.SetPolicy].
func (a *Agent) SetPolicy(p sds.Policy) int {
	n := 0
	for _, server := range a.servers {
		n += server.SetPolicy(p)
	}
	return n
}

// Retry has failed attempts of an authority made again at once: call it when its
// provider, token or settings have changed. An empty name is all authorities.
func (a *Agent) Retry(authority string) {
	a.secrets.Kick(authority)
	if a.identities != nil {
		a.identities.Kick()
	}
}

// Run serves until ctx ends, and then closes the agent in the order of [Agent.Close].
// It returns nil where ctx ended it, and an error where the socket broke. It may be
// called once.
func (a *Agent) Run(ctx context.Context) error {
	served := make(chan error, len(a.servers))
	for _, server := range a.servers {
		go func() { served <- server.Serve() }()
	}
	left := len(a.servers)
	var errs []error
	select {
	case <-ctx.Done():
	case err := <-served: // a listener broke
		errs, left = append(errs, err), left-1
	}
	errs = append(errs, a.Close())
	for range left {
		errs = append(errs, <-served)
	}
	return errors.Join(errs...)
}

// Close ends the agent; Run returns then, too. In this order:
//
//  1. The streams end with Unavailable, so that clients come back to a successor, and
//     no new one is taken. Connections that do not close by themselves are cut after
//     DrainTimeout.
//  2. The sockets' files are removed, and the stream to a discovery service is ended.
//  3. Requests to authorities and watches of roots are cancelled. A client that ignores
//     that is left behind after a second.
//  4. Who watches a secret is told, and [Agent.Secrets] then answers [secret.ErrClosed].
//
// After that no hook is called any more. The Clients, Token sources and Sources of the
// Config are the caller's, to be closed now. Close may be called more than once, and by
// several goroutines.
func (a *Agent) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), a.drain)
	defer cancel()
	err := a.closeServers(ctx)
	a.relay.close()
	if a.identities != nil {
		err = errors.Join(err, a.identities.Close())
	}
	return errors.Join(err, a.secrets.Close())
}

// closeServers ends the streams of all sockets at once, so that the time to drain is
// the same for all.
func (a *Agent) closeServers(ctx context.Context) error {
	closed := make(chan error, len(a.servers))
	for _, server := range a.servers {
		go func() { closed <- server.Close(ctx) }()
	}
	var errs []error
	for range a.servers {
		errs = append(errs, <-closed)
	}
	return errors.Join(errs...)
}
