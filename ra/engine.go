package ra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/tokenbucket"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Engine issues certificates by a policy. All methods are safe for concurrent use.
type Engine struct {
	cfg         Config
	policy      atomic.Pointer[Policy]
	doors       atomic.Pointer[doors]
	authorities map[string]*authority
	audit       *auditLog
	refusals    *refusals

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu         sync.Mutex // held briefly, never over foreign code
	closed     bool
	flights    map[[16]byte]*flight
	holders    recentOf[holder, *history]
	subjects   recentOf[holder, *tokenbucket.Bucket] // that can make holders
	namespaces recentOf[string, *tokenbucket.Bucket]
}

// New returns an Engine that issues at once. It asks no authority anything before it
// returns: see [Engine.CheckAbilities]. Call Close.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	authorities := make([]Authority, len(cfg.Authorities))
	for i, a := range cfg.Authorities {
		authorities[i] = a.withDefaults()
	}
	cfg.Authorities = authorities
	if err := cfg.check(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, authorities: map[string]*authority{}, audit: newAuditLog(cfg.Audit),
		flights:    map[[16]byte]*flight{},
		holders:    newRecent[holder](maxHolders, func() *history { return &history{} }),
		subjects:   newRecent[holder](maxHolders, func() *tokenbucket.Bucket { return &tokenbucket.Bucket{} }),
		namespaces: newRecent[string](maxNamespaces, func() *tokenbucket.Bucket { return &tokenbucket.Bucket{} }),
	}
	e.refusals = newRefusals(e.audit)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for _, a := range cfg.Authorities {
		e.authorities[a.Name] = newAuthority(e, a)
	}
	if err := e.SetRules(cfg.Policy, cfg.Doors); err != nil {
		e.cancel()
		return nil, err
	}
	e.tasks.Go(e.housekeep)
	for _, a := range e.authorities {
		e.tasks.Go(a.run)
		e.tasks.Go(a.learn)
	}
	return e, nil
}

// SetPolicy replaces the policy. A request that waits and would be decided otherwise now
// ends with [ca.Aborted]. The error names each rule with an unknown authority or door.
func (e *Engine) SetPolicy(p *Policy) error { return e.SetRules(p, e.doors.Load().all) }

// SetRules replaces the policy and the doors. Requests at a door that is gone end with
// [ca.Aborted], and new ones are [ca.Invalid].
func (e *Engine) SetRules(p *Policy, all []Door) error {
	if p == nil {
		return errors.New("there is no policy")
	}
	next, errs := newDoors(all)
	for _, r := range p.rules {
		if e.authorities[r.Authority] == nil {
			errs = append(errs, fmt.Errorf("rule %q: there is no authority %q", r.Name, r.Authority))
		}
		for _, door := range r.match.doors {
			if _, known := next.by[door]; !known {
				errs = append(errs, fmt.Errorf("rule %q: there is no door %q", r.Name, door))
			}
		}
	}
	if len(errs) == 0 {
		e.doors.Store(next)
		e.policy.Store(p)
	}
	return errors.Join(errs...)
}

// CheckAbilities returns an error that names each rule whose callers send CSRs without names
// and whose authority signs only the names of a CSR. An authority whose abilities are unknown now is
// none. Issue refuses such requests as well, and asks no certificate for them.
func (e *Engine) CheckAbilities(ctx context.Context) error {
	var errs []error
	unable := map[*authority]bool{}
	for _, a := range e.authorities {
		_, err := call.Do(ctx, a.conf.Timeout, a.asks, a.certifies)
		unable[a] = err != nil && ca.ActionFor(err) == ca.Missing
	}
	for _, r := range e.policy.Load().rules {
		for _, d := range e.doors.Load().all {
			if d.NoNames && unable[e.authorities[r.Authority]] && (len(r.match.doors) == 0 || slices.Contains(r.match.doors, d.Name)) {
				errs = append(errs, fmt.Errorf("rule %q: the door %q has CSRs without names, and the authority %q signs only what a CSR names; use one that certifies the names of the request", r.Name, d.Name, r.Authority))
			}
		}
	}
	return errors.Join(errs...)
}

// RootsWritten reports which roots are written wherever the authority's roots are published, for
// authorities whose Roots.Confirmed is set. Those in bundle begin their wait. A root that waits
// and is not in it was removed somewhere: it waits anew once it is written again. One that is
// trusted stays so, as certificates below it are out.
func (e *Engine) RootsWritten(authority string, bundle *pki.Bundle) {
	if a := e.authorities[authority]; a != nil {
		_ = a.changeRoots(func(now time.Time) error { a.roots.phases.Wrote(bundle, now); return nil }) // it cannot fail
	}
}

// SetRootsWait replaces Roots.Wait of an authority, for roots that wait already as well.
func (e *Engine) SetRootsWait(authority string, wait time.Duration) {
	a := e.authorities[authority]
	if a == nil || wait <= 0 {
		return
	}
	e.mu.Lock()
	a.conf.Roots.Wait = wait // for when they are restored
	e.mu.Unlock()
	_ = a.changeRoots(func(time.Time) error { a.roots.phases.SetWait(wait); return nil }) // it cannot fail
}

// ShareChanged reports that an authority's Share may have grown.
func (e *Engine) ShareChanged(authority string) {
	if a := e.authorities[authority]; a != nil {
		a.poke()
	}
}

// Wanted returns how much of an authority's Rate there is use for: 1 is all of it. Where
// requests wait it may be more.
func (e *Engine) Wanted(authority string) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.authorities[authority]
	if a == nil {
		return 0
	}
	return a.queue.Demand(time.Now()) / a.conf.Limits.Rate
}

// Roots returns the roots of an authority to verify with; nil while none is known.
func (e *Engine) Roots(authority string) *pki.Bundle {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.authorities[authority]; a != nil && a.roots.phases != nil {
		return a.roots.phases.Bundle()
	}
	return nil
}

// AuditFault returns why the audit log cannot be written, as far as is known, or nil. Nothing is
// issued then. The Engine tries again each minute, and for each request.
func (e *Engine) AuditFault() error {
	if fault := e.audit.fault.Load(); fault != nil {
		return fmt.Errorf("failed to write the audit log, without which nothing is issued: %w", *fault)
	}
	return nil
}

// Due reports whether requests wait for an authority, or are with it.
func (e *Engine) Due(authority string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.authorities[authority]
	if a == nil {
		return false
	}
	q := a.queue.Status()
	return q.Waiting+q.InFlight > 0
}

// housekeep writes what was counted, and forgets what no caller collects.
func (e *Engine) housekeep() {
	timer := time.NewTicker(flushEvery)
	defer timer.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-timer.C:
			_ = e.audit.ready(e.ctx, e.cfg.Now()) // AuditFault has why
			e.refusals.flush(e.ctx)
			e.uncollected(e.ctx, e.forget(time.Now().Add(-keep))...)
		}
	}
}

// Close ends the Engine: callers that wait get [ca.Unavailable], calls in flight end, and
// counted refusals are written. It may be called twice.
func (e *Engine) Close() {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	for _, f := range e.flights {
		if !f.started && !f.landed {
			e.end(f, errClosed)
		}
	}
	e.mu.Unlock()
	e.cancel()
	e.tasks.Wait()
	if !again {
		e.refusals.flush(context.Background())
		e.uncollected(context.Background(), e.forget(time.Now().Add(pki.MaxClockSkew))...) // those that begin later, too
	}
}

var errClosed = ca.Errorf(ca.Unavailable, "the registration authority is ending")
