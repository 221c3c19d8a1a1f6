package pluginhost

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
)

// Next is another entry for a provider, and not in force yet. Use it from one goroutine at a
// time, and end it with Commit or Abort; a Start that fails ends it, too.
type Next struct {
	supervisor *supervise.Supervisor
	plan       *supervise.Plan
}

// Next finds and verifies the entry's binary again and starts nothing. The entry's name must
// not change.
func (p *Provider) Next(entry Entry) (*Next, error) {
	if name := p.supervisor.InForce().Name; entry.Name != name {
		return nil, fmt.Errorf("provider %q: cannot rename it to %q", name, entry.Name)
	}
	plan, err := p.plans(entry)
	if err != nil {
		return nil, err
	}
	return &Next{p.supervisor, p.supervisor.Known(plan)}, nil
}

// Changed reports whether the entry or its binary differ from those in force.
func (n *Next) Changed() bool { return n.plan != n.supervisor.InForce() }

// Client returns the client of the entry. Its calls wait for Commit.
func (n *Next) Client() Client { return Client{n.supervisor.Of(n.plan)} }

// Start starts a process beside the running one and returns when it is ready. If it does not get
// ready before ctx ends ([Options.CallTimeout] without a deadline), Start returns the reason
// and leaves nothing behind; a provider whose CA is unavailable is not ready. If nothing has
// changed, nothing is started, but a provider in backoff or with an open circuit is started at
// once. Where no process was ever ready, there is nothing to keep: Start returns at once, and
// Commit starts the provider.
func (n *Next) Start(ctx context.Context) error {
	return exported(n.supervisor.Prepare(ctx, n.plan))
}

// Commit puts the entry in force: new calls go to its process, and calls in flight finish in
// the old one. It is for an entry whose Start has succeeded.
func (n *Next) Commit() { n.supervisor.Commit(n.plan) }

// Abort ends the new process, if there is one, and leaves the running one alone. A Start that is
// under way is ended by its context.
func (n *Next) Abort() { n.supervisor.Abort(n.plan) }
