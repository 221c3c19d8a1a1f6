package ondemand

import (
	"slices"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// rule is a Rule in force, or one that a reload removed. The scheduler's lock guards all but
// patterns.
type rule struct {
	patterns *names.Patterns
	conf     *Rule // a reload brings another
	removed  bool
	pool     *schedule.Pool[*entry]
	held     int            // entries beyond their decision
	deciding int            // entries before it
	covered  int            // entries served by Cover
	victims  []*entry       // unused, the longest first; some may be in use by now
	search   rotation.Pause // until more are looked for
	counts   counts
}

// counts are totals since the start.
type counts struct {
	issued, renewed, orders, failed, asked, covered, dropped, shared uint64
	refused                                                          map[Refusal]uint64
}

func (r *rule) authority() string { return r.conf.Certificate.Authorities[0] }

func (r *rule) refuse(why Refusal) { r.counts.refused[why]++ }

// spec returns the specification of a certificate for a name.
func (r *rule) spec(name string) secret.Spec {
	spec := r.conf.Certificate
	spec.Name, spec.Identity.DNSNames = name, []string{name}
	return spec
}

// match returns the rule in force with the most specific match, or nil.
func (s *Set) match(name string) (best *rule) {
	most := 0
	for _, r := range *s.rules.Load() {
		if rank, ok := r.patterns.Match(name); ok && (best == nil || rank > most) {
			best, most = r, rank
		}
	}
	return best
}

// Apply replaces the rules. An error changes nothing. The names of a rule that is left out are
// refused to new subscribers, not renewed, and dropped when their certificates end; those that
// another rule matches now belong to that.
func (s *Set) Apply(rules []Rule) error {
	checked, err := checkedRules(rules)
	if err != nil {
		return err
	}
	s.sched.Lock()
	defer s.sched.Unlock()
	if s.closed {
		return secret.ErrClosed
	}
	before := *s.rules.Load()
	var now []*rule
	var pools []*schedule.Pool[*entry]
	for _, conf := range checked {
		r := &rule{counts: counts{refused: map[Refusal]uint64{}}}
		if i := slices.IndexFunc(before, func(b *rule) bool { return b.conf.Name == conf.Name }); i >= 0 {
			old := before[i]
			r.counts = old.counts
			if old.authority() == conf.Certificate.Authorities[0] && old.conf.InFlight == conf.InFlight {
				r.pool, old.pool = old.pool, nil
			}
		}
		r.patterns, r.conf = conf.Patterns, &conf
		if r.pool == nil {
			r.pool = s.sched.Pool(conf.InFlight, func() *secret.Signer { return s.cfg.Manager.Signer(conf.Certificate.Authorities[0]) })
		}
		now = append(now, r)
	}
	s.rules.Store(&now)
	s.mostSpelled, s.flight.Common = 0, 0
	for _, conf := range checked {
		s.mostSpelled += conf.Names
		s.flight.Common = max(s.flight.Common, together*conf.InFlight)
	}
	for _, r := range before {
		r.removed = true
		s.gone = append(s.gone, r)
		if r.pool != nil {
			pools = append(pools, r.pool)
		}
		r.pool = nil
	}
	s.assign()
	for _, p := range pools {
		p.Close()
	}
	return nil
}

// assign gives each entry to the rule that matches it now.
func (s *Set) assign() {
	for _, e := range s.sched.All() {
		r := s.match(e.name)
		switch {
		case r != nil:
			s.give(e, r)
		case !e.held():
			s.refuse(e, NoRule)
			continue
		}
		s.sched.Requeue(e)
	}
	s.adopt()
	s.gone = slices.DeleteFunc(s.gone, func(r *rule) bool { return r.held+r.deciding+r.covered == 0 })
}

// give gives an entry to a rule in force. Another authority does not know its order.
func (s *Set) give(e *entry, r *rule) {
	if e.rule.authority() != r.authority() {
		e.order = nil
	}
	e.rule = r
	e.recount()
}
