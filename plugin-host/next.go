package pluginhost

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Next finds and verifies the entry's binary again and starts nothing. The entry's name must
// not change. Use the Plan from one goroutine at a time, and end it with Commit or Abort; a Start that
// fails ends it, too. A reload has two steps, so that its caller can put a new entry in force together
// with what belongs to it.
func (s *Provider) Next(entry Entry) (*Plan, error) {
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
func (s *Provider) nextOf(p *Plan) *Plan {
	if is := s.gate.inForce(); is.same(p) {
		p.close()
		return is
	}
	p.s = s
	return p
}

// Changed reports whether the entry or its binary differ from those in force.
func (p *Plan) Changed() bool { return p != p.s.gate.inForce() }

// Client returns the client of the entry. Its calls wait for Commit.
func (p *Plan) Client() Client { return Client{p.s, p} }

// Start starts a process beside the running one and returns when it is ready. Calls go where they
// went until Commit. If it does not get ready before ctx ends ([Options.CallTimeout] without a
// deadline), Start returns the reason and leaves nothing behind; a provider whose CA is unavailable is
// not ready. If nothing has changed, nothing is started, but a provider in backoff or with an open
// circuit is started at once. Where no process was ever ready, there is nothing to keep: Start returns
// at once, and Commit starts the provider. A later Start drops what an earlier one prepared.
func (p *Plan) Start(ctx context.Context) error {
	s := p.s
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
func (p *Plan) Commit() { p.s.order(context.Background(), func() { p.s.commit(p) }) }

// Abort ends the new process, if there is one, and leaves the running one alone. A Start that is
// under way is ended by its context.
func (p *Plan) Abort() {
	if !p.s.order(context.Background(), func() { p.s.abort(p) }) {
		p.s.closeUnused(p)
	}
}
