package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

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

// Ready returns the names of the secrets that are not held; empty means ready.
func (a *Agent) Ready() []string {
	var missing []string
	for _, s := range a.Status() {
		if !s.Held {
			missing = append(missing, s.Name)
		}
	}
	return missing
}

// Streams returns how many streams and fetches are open.
func (a *Agent) Streams() int { return a.server.Streams() }

// Reload takes over another list of secrets and authorities, whole or not at all, and
// leaves alone what is the same; see [secret.Manager.Reload].
func (a *Agent) Reload(secrets []secret.Spec, authorities []secret.Authority) error {
	return a.secrets.Reload(secrets, authorities)
}

// SetPolicy says from now on which peers the socket answers; see
// [sds.Server.SetPolicy].
func (a *Agent) SetPolicy(p sds.Policy) int { return a.server.SetPolicy(p) }

// Retry has failed attempts of an authority made again at once: call it when its
// provider, token or settings have changed. An empty name is all authorities.
func (a *Agent) Retry(authority string) { a.secrets.Kick(authority) }

// Run serves until ctx ends, and then closes the agent: streams end first, so that
// clients come back to a successor, then the requests in flight. It returns nil
// where ctx ended it.
func (a *Agent) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- a.server.Serve() }()
	var err error
	select {
	case <-ctx.Done():
		err = a.Close()
		return errors.Join(err, <-served)
	case err = <-served: // the listener broke
		return errors.Join(err, a.Close())
	}
}

// Close ends the agent and removes its socket; Run returns then, too. It may be
// called twice.
func (a *Agent) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), a.drain)
	defer cancel()
	return errors.Join(a.server.Close(ctx), a.secrets.Close())
}
