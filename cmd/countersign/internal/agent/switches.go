package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/workloads"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// switchTimeout is how long one try to get a provider ready may take.
	switchTimeout = time.Minute
	// longestPause is the longest wait between two tries.
	longestPause = 10 * time.Minute
)

// switches put the authorities of one configuration in force whose providers have to get ready
// first: each with its client and its rules in one step, and none waits for another. One that
// does not get ready keeps those before, and is tried again.
type switches struct {
	*reloader
	c      config.Config
	ctx    context.Context
	cancel context.CancelFunc
	first  []<-chan error // the outcome of each first try
}

// step is an authority with a client that is not in force yet.
type step struct {
	next      *pluginhost.Plan
	authority secret.Authority
}

// startSwitches starts one for each changed entry. The caller holds r.mu.
func (r *reloader) startSwitches(ctx context.Context, c config.Config, ch *change, all []secret.Authority) *switches {
	s := &switches{reloader: r, c: c}
	s.ctx, s.cancel = context.WithCancel(ctx)
	for _, entry := range c.Providers {
		next := ch.next[entry.Name]
		switch {
		case next == nil: // it was added
		case !next.Changed():
			r.wg.Go(func() { _ = next.Start(s.ctx) }) // it only ends a wait
		default:
			i := slices.IndexFunc(all, func(a secret.Authority) bool { return a.Name == entry.Name })
			first := make(chan error, 1)
			s.first = append(s.first, first)
			r.wg.Go(func() { s.follow(entry, step{next, all[i]}, first) })
		}
	}
	return s
}

// stop has the switches end without a commit. It does not wait.
func (s *switches) stop() {
	if s != nil {
		s.cancel()
	}
}

// outcome waits for the first try of each and returns the errors.
func (s *switches) outcome() error {
	var errs []error
	for _, first := range s.first {
		errs = append(errs, <-first)
	}
	return errors.Join(errs...)
}

// follow tries until the authority is in force.
func (s *switches) follow(entry config.Provider, one step, first chan<- error) {
	var waits rotation.Waits
	err := s.try(one)
	first <- err
	for err != nil && s.ctx.Err() == nil {
		wait := waits.After(err, time.Now(), 24*time.Hour, 0) // what is in force serves on
		if wait == rotation.Never {
			wait = longestPause
		}
		s.log.Warn("authority keeps its previous client and rules", "provider", entry.Name, "error", err, "next_try_in", wait)
		rotation.Sleep(s.ctx, wait, clock.Wall, nil)
		if one, err = s.again(entry); err == nil {
			err = s.try(one)
		}
	}
}

// again makes the step anew: binary, files and settings may be others.
func (s *switches) again(entry config.Provider) (step, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return step{}, s.ctx.Err()
	}
	next, err := s.providers.of(entry.Name).Next(entry.ToRun())
	if err != nil {
		return step{}, err
	}
	authority, err := wiring.Authority(entry, next.Client(), s.providers.tokens)
	if err != nil {
		next.Abort()
	}
	return step{next, authority}, err
}

// try brings the provider to ready beside the running one, and then switches.
func (s *switches) try(one step) error {
	ctx, cancel := context.WithTimeout(s.ctx, switchTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		one.next.Abort()
		return err
	}
	if err := one.next.Start(ctx); err != nil {
		return err
	}
	err := s.commit(one)
	if err != nil {
		one.next.Abort()
	}
	return err
}

// commit switches client and rules: the engine has the value first, whose calls wait for the
// provider's commit.
func (s *switches) commit(one step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if err := s.agent.SetAuthority(one.authority); err != nil {
		return err
	}
	one.next.Commit()
	name := one.authority.Name
	s.inForce[name] = one.authority
	s.providers.stream.Take(name, workloads.ExchangeOf(s.providers.tokens, name))
	s.followTokens()
	s.enforcePolicy() // the provider may run as another user
	s.log.Info("authority has its new client and rules", "provider", name)
	return nil
}
