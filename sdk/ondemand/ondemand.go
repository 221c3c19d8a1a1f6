// Package ondemand (experimental) gets certificates for names that no configuration lists: the
// first subscription for a name that a [Rule] matches starts its decision and its order. [New] makes
// a [Set], a [secret.Source] that a server such as sdk/sds asks in the middle of a TLS handshake.
//
// What a check costs decides the order of the checks: the syntax of the name, the patterns,
// answers that are remembered, Rule.Ask, Rule.Budget, and then one order for a name, however many
// subscribe to it. A name that no rule matches costs the match and nothing else.
// docs/decisions/0042-certificates-on-demand.md gives the rationale.
package ondemand

import (
	"errors"
	"sync/atomic"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/internal/share"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Set holds the certificates of names on demand and rotates those in use. One goroutine schedules
// all rotations. Each rule has goroutines of its own for its orders while there are any, so that no rule
// waits for the authority of another. All rules together may use four times as much as the largest
// one, and a few orders for each. All methods are safe for concurrent use.
type Set struct {
	cfg   Config
	rules atomic.Pointer[[]*rule] // in force
	// badName and noRule count subscriptions that no rule was asked about.
	badName, noRule atomic.Uint64

	// sched has the lock that guards the rest.
	sched  *schedule.Scheduler[*entry]
	gone   []*rule           // that a reload removed, with names left
	flight share.Places      // orders of all rules
	names  map[string]*entry // by folded name
	uses   uses              // of the last run
	// refused are the watchers of names that Watch has refused: see WatchRefused.
	refused map[string]*watchers.Set[func()]
	loads   loads
	unsaved unsaved
	closed  bool
	shared  SharedStorage // Config.Storage, if other machines use it
	// spelled counts the spellings of all entries. mostSpelled bounds it.
	spelled, mostSpelled int
	records
}

var _ secret.Source = (*Set)(nil)

// New checks cfg and returns a Set with the names of its Storage. Their certificates are read
// when first asked for. Close stops the Set; the caller closes the Manager after that.
func New(cfg Config) (*Set, error) {
	if cfg.Manager == nil {
		return nil, errors.New("ondemand: Config.Manager is required")
	}
	s := &Set{cfg: cfg.withDefaults(), names: map[string]*entry{}, refused: map[string]*watchers.Set[func()]{}, records: newRecords(), loads: loads{turns: newTurns(readers)}, unsaved: unsaved{items: map[*entry]*secret.Item{}, turn: call.NewTurn()}}
	s.shared, _ = cfg.Storage.(SharedStorage)
	s.rules.Store(&[]*rule{})
	s.sched = schedule.New(s.hooks(), s.cfg.Now, s.cfg.Log)
	s.flight.Own = ownInFlight
	s.sched.Share(&s.flight)
	s.readUses()
	err := s.readIndex()
	if err == nil {
		err = s.Apply(cfg.Rules)
	}
	if err != nil {
		s.sched.Close()
		return nil, err
	}
	s.sched.Start()
	if s.cfg.Uses != nil {
		s.sched.Go(s.keepUses)
	}
	if s.shared != nil {
		s.sched.Go(s.followChanges)
	}
	return s, nil
}

// Close stops all work and waits for it. It notifies watchers; Peek then returns
// [secret.ErrClosed]. Items that it returned stay valid. Close is idempotent and returns nil.
func (s *Set) Close() error {
	s.sched.Lock()
	first := !s.closed
	s.closed = true
	s.sched.Unlock()
	if !first {
		return nil
	}
	s.sched.Close()
	s.sched.Lock()
	defer s.sched.Unlock()
	for _, e := range s.names {
		s.notify(e)
	}
	return nil
}

// Kick retries the failed attempts of an authority at once. Call it when its token, settings or
// provider have changed; an empty name means all authorities.
func (s *Set) Kick(authority string) {
	s.sched.Lock()
	defer s.sched.Unlock()
	s.sched.Kick(
		func(e *entry) bool { return authority == "" || e.rule.authority() == authority },
		func(e *entry) bool { return e.failure != nil || e.asking() })
}
