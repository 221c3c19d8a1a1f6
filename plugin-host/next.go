package pluginhost

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Next is another entry for a provider, and not in force yet. Use it from one goroutine at a
// time, and end it with Commit or Abort; a Start that fails ends it, too. A reload has two steps, so
// that its caller can put a new entry in force together with what belongs to it.
type Next struct {
	s    *Provider
	plan *plan
}

// Next finds and verifies the entry's binary again and starts nothing. The entry's name must
// not change.
func (s *Provider) Next(entry Entry) (*Next, error) {
	if entry.Name != s.name {
		return nil, fmt.Errorf("provider %q: cannot rename it to %q", s.name, entry.Name)
	}
	p, err := s.plans(entry)
	if err != nil {
		return nil, err
	}
	return s.nextOf(p), nil
}

// nextOf takes the plan in force if it is the same as p, which it then closes.
func (s *Provider) nextOf(p *plan) *Next {
	if is := s.gate.inForce(); is.same(p) {
		p.close()
		p = is
	}
	return &Next{s, p}
}

// Changed reports whether the entry or its binary differ from those in force.
func (n *Next) Changed() bool { return n.plan != n.s.gate.inForce() }

// Client returns the client of the entry. Its calls wait for Commit.
func (n *Next) Client() Client { return Client{n.s, n.plan} }

// Start starts a process beside the running one and returns when it is ready. Calls go where they
// went until Commit. If it does not get ready before ctx ends ([Options.CallTimeout] without a
// deadline), Start returns the reason and leaves nothing behind; a provider whose CA is unavailable is
// not ready. If nothing has changed, nothing is started, but a provider in backoff or with an open
// circuit is started at once. Where no process was ever ready, there is nothing to keep: Start returns
// at once, and Commit starts the provider. A later Start drops what an earlier one prepared.
func (n *Next) Start(ctx context.Context) error {
	s, p := n.s, n.plan
	p.use()
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	r := &reload{ctx: ctx, plan: p, reply: make(chan error, 1)}
	if !s.order(context.Background(), func() { s.reload(r) }) {
		s.closeUnused(p)
		return ca.Errorf(ca.Unavailable, "provider %q is closed", s.name)
	}
	if err := <-r.reply; err != nil {
		return exported(fmt.Errorf("provider %q: %w", s.name, err))
	}
	return nil
}

// Commit puts the entry in force: new calls go to its process, and calls in flight finish in
// the old one. It is for an entry whose Start has succeeded; a process that has ended meanwhile is
// started again.
func (n *Next) Commit() { n.s.order(context.Background(), func() { n.s.commit(n.plan) }) }

// Abort ends the new process, if there is one, and leaves the running one alone. A Start that is
// under way is ended by its context.
func (n *Next) Abort() {
	if !n.s.order(context.Background(), func() { n.s.abort(n.plan) }) {
		n.s.closeUnused(n.plan)
	}
}
