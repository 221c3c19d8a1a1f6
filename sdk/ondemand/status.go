package ondemand

import (
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Refusal is why a name got no certificate, in one word that fits a metric label.
type Refusal string

// The refusals. A name that no rule matches is counted as [NoRule], in [Status] alone.
const (
	BadName    Refusal = "name"     // not a DNS name
	NoRule     Refusal = "no-rule"  // no rule matches
	Denied     Refusal = "denied"   // by Rule.Ask
	Undecided  Refusal = "ask"      // Rule.Ask failed
	OverBudget Refusal = "budget"   // Rule.Budget is used up
	Full       Refusal = "full"     // Rule.Names or Rule.Queue is reached
	Failing    Refusal = "failing"  // the authority failed or refused
	TooLate    Refusal = "too-late" // no certificate within Rule.Wait
	Spelling   Refusal = "spelling" // of the name, in another case: too many are in use
)

// Status is what an operator may see of a [Set]. It has few names of certificates: those that expire
// first, and those in the text of a failure.
type Status struct {
	// Refused counts the subscriptions since the start that no rule was asked about, by
	// reason: BadName and NoRule.
	Refused map[Refusal]uint64 `json:"refused,omitempty"`
	Rules   []RuleStatus       `json:"rules"`
	// Storage has the counters of Config.Storage; nil if it has none. A Storage reports them by a method
	// Status() secret.StorageStatus.
	Storage *secret.StorageStatus `json:"storage,omitempty"`
}

// RuleStatus is the state of the names of one rule.
type RuleStatus struct {
	Name      string `json:"name"`
	Authority string `json:"authority"`
	// Removed means that a reload removed the rule, and names are left that it issued.
	Removed bool `json:"removed,omitempty"`

	Names    int  `json:"names"`             // that hold a certificate or have an order
	Limit    int  `json:"limit"`             // Rule.Names
	Evicts   bool `json:"evicts,omitempty"`  // Rule.Evict
	Held     int  `json:"held"`              // with a valid certificate
	Expired  int  `json:"expired,omitempty"` // with one that is not valid any more
	New      int  `json:"new,omitempty"`     // that never had one, and are not covered
	Idle     int  `json:"idle,omitempty"`    // without a subscription
	Failing  int  `json:"failing,omitempty"` // whose last attempt failed
	Pending  int  `json:"pending,omitempty"` // whose order the authority has not decided on
	Waiting  int  `json:"waiting,omitempty"` // subscriptions that wait for a certificate
	Queued   int  `json:"queued,omitempty"`  // names that wait for a place in flight
	InFlight int  `json:"in_flight,omitempty"`

	// NextRenewal and NextExpiry are the earliest of all; zero if there are none. Late
	// counts the certificates whose renewal is overdue, and LateExpiry is when the first of
	// them expires.
	NextRenewal time.Time `json:"next_renewal,omitzero"`
	NextExpiry  time.Time `json:"next_expiry,omitzero"`
	Late        int       `json:"late,omitempty"`
	LateExpiry  time.Time `json:"late_expiry,omitzero"`
	// Next are the names that expire first of those that are renewed, ten at most.
	Next []Expiry `json:"next,omitempty"`

	// BudgetLeft is how many new names the budget has left now; nil if unknown or without a limit. A
	// Budget reports it by a method Left(now time.Time) int, which is negative without a limit.
	BudgetLeft *int `json:"budget_left,omitempty"`
	// Failure is the most recent failure that persists; nil if there is none.
	Failure *secret.Failure `json:"failure,omitempty"`

	// The fields below count since the start.
	Issued  uint64             `json:"issued"`            // new names that got a certificate
	Renewed uint64             `json:"renewed,omitempty"` // certificates replaced
	Orders  uint64             `json:"orders"`            // requests to the authority
	Failed  uint64             `json:"failed,omitempty"`  // those of them that failed
	Asked   uint64             `json:"asked,omitempty"`   // calls of Rule.Ask
	Shared  uint64             `json:"shared,omitempty"`  // certificates taken over from other machines
	Covered uint64             `json:"covered,omitempty"` // subscriptions served by Config.Covering
	Dropped uint64             `json:"dropped,omitempty"` // names that were idle or evicted
	Refused map[Refusal]uint64 `json:"refused,omitempty"` // subscriptions, by reason
}

// Expiry is when the certificate of a name expires.
type Expiry struct {
	Name string    `json:"name"`
	Ends time.Time `json:"ends"`
	Late bool      `json:"late,omitempty"` // its renewal is overdue
}

// mostNext is the most names in RuleStatus.Next.
const mostNext = 10

// Status returns the current state.
func (s *Set) Status() Status {
	s.sched.Lock()
	defer s.sched.Unlock()
	st := Status{Refused: map[Refusal]uint64{}}
	for why, n := range map[Refusal]uint64{BadName: s.badName.Load(), NoRule: s.noRule.Load()} {
		if n > 0 {
			st.Refused[why] = n
		}
	}
	if counted, ok := s.cfg.Storage.(interface{ Status() secret.StorageStatus }); ok {
		counts := counted.Status()
		st.Storage = &counts
	}
	now, places := s.sched.Now(), map[*rule]int{}
	for _, r := range slices.Concat(*s.rules.Load(), s.gone) {
		places[r] = len(st.Rules)
		st.Rules = append(st.Rules, r.status(now))
	}
	s.sched.Each(func(e *entry) {
		if at, ok := places[e.rule]; ok {
			st.Rules[at].add(e, now)
		}
	})
	return st
}

// status returns the state of a rule without its names.
func (r *rule) status(now time.Time) RuleStatus {
	c := r.counts
	st := RuleStatus{
		Name: r.conf.Name, Authority: r.authority(), Removed: r.removed, Names: r.held, Limit: r.conf.Names, Evicts: r.conf.Evict,
		Issued: c.issued, Renewed: c.renewed, Orders: c.orders, Failed: c.failed, Asked: c.asked, Covered: c.covered, Shared: c.shared, Dropped: c.dropped,
		Refused: maps.Clone(c.refused),
	}
	if r.pool != nil {
		st.Queued, st.InFlight = r.pool.Waiting(), r.pool.InFlight()
	}
	if budget, ok := r.conf.Budget.(interface{ Left(now time.Time) int }); ok {
		if left := budget.Left(now); left >= 0 {
			st.BudgetLeft = &left
		}
	}
	return st
}

// add counts one name.
func (st *RuleStatus) add(e *entry, now time.Time) {
	watching := e.watchers.Len()
	if watching == 0 {
		st.Idle++
	}
	if e.waiting {
		st.Waiting += watching
	}
	if !e.denied {
		st.addFailure(e.failure)
	}
	term, held := e.Rotation.Held()
	switch {
	case !held && e.cover != nil:
		return
	case !held:
		st.New++
		return
	case now.After(term.Ends):
		st.Expired++
		return
	}
	st.Held++
	st.NextExpiry = clock.First(st.NextExpiry, term.Ends)
	if e.denied {
		return // it ends as decided
	}
	st.NextRenewal = clock.First(st.NextRenewal, term.Renew)
	if !e.Rotation.Wanted() {
		return
	}
	late := now.After(term.Renew)
	if late {
		st.Late++
		st.LateExpiry = clock.First(st.LateExpiry, term.Ends)
	}
	st.addNext(Expiry{e.name, term.Ends, late})
}

// addNext keeps the names that expire first, in order.
func (st *RuleStatus) addNext(e Expiry) {
	if len(st.Next) == mostNext && !e.Ends.Before(st.Next[mostNext-1].Ends) {
		return
	}
	at, _ := slices.BinarySearchFunc(st.Next, e, func(a, b Expiry) int { return a.Ends.Compare(b.Ends) })
	st.Next = slices.Insert(st.Next, at, e)
	st.Next = st.Next[:min(len(st.Next), mostNext)]
}

func (st *RuleStatus) addFailure(f *secret.Failure) {
	switch {
	case f == nil:
		return
	case f.Event().Kind == secret.Waiting:
		st.Pending++
		return
	}
	st.Failing++
	if st.Failure == nil || f.At.After(st.Failure.At) {
		st.Failure = f
	}
}
