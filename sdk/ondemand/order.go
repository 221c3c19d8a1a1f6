package ondemand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// askAgain is when Rule.Ask is asked again about a renewal that it refused.
	askAgain = time.Hour
	// askTimeout bounds a question about a renewal. Rule.Ask has a bound of its own.
	askTimeout = 30 * time.Second
)

// job is one attempt to get a certificate. It touches no mutable state of its entry until it
// lands.
type job struct {
	set   *Set
	entry *entry
	conf  *Rule
	spec  secret.Spec
	name  string
	held  bool // it is a renewal
	ask   bool // Rule.Ask has not decided on this attempt yet
	again bool // the last order was refused
	read  bool // the record is in Storage only
	paid  bool // from the budget
	saved bool // Storage may have a record, by this attempt
	kept  bool // or by the ones before

	claim  secret.Claim  // of the name, in a shared Storage
	early  bool          // it failed before anything was decided: the Storage is away
	alone  bool          // without a claim, as the Storage is away
	stored bool          // the record has the order
	term   rotation.Term // of the certificate held until now
	known  term          // of the record, by this attempt
	vain   *secret.Order // the last order, if it was refused
	before *secret.Item  // held until now
	order  *secret.Order // nil: make a new one
	item   *secret.Item
	sent   bool // to the authority
	why    Refusal
	err    error
	// unsaved is why Storage may not have the item.
	unsaved   error
	overtaken bool // another machine has stored a newer one
	// foreign: the record has a certificate that this machine cannot use, and others may. A certificate
	// replaces it, an order does not.
	foreign bool
}

// request returns the attempt for an entry that is due, unless its certificate is being stored.
func (s *Set) request(e *entry, now time.Time) schedule.Job {
	if e.saving {
		return nil
	}
	j := &job{
		set: s, entry: e, conf: e.rule.conf, spec: e.rule.spec(e.name), name: e.name, held: e.held(), before: e.Item, order: e.order,
		again: e.refused, kept: e.stored, vain: e.vain,
	}
	j.term, _ = e.Rotation.Held()
	j.read = e.stored && e.Item == nil && (j.held || j.order == nil && !j.again)
	j.ask = j.conf.Ask != nil && (j.held || j.read || j.again)
	e.Rotation.Begin(rotation.Now(now))
	return j
}

// Run implements [schedule.Job].
func (j *job) Run(w *schedule.Worker) {
	j.err = j.run(j.set.sched.Context, w)
	if refused, ok := errors.AsType[*refusal](j.err); ok {
		j.why = refused.why
	} else {
		j.why = Failing
	}
}

func (j *job) run(ctx context.Context, w *schedule.Worker) (err error) {
	j.stored = j.order != nil && j.kept && !j.held
	defer func() {
		if !j.sent {
			j.refund()
		}
	}()
	if j.set.shared == nil {
		return j.attempt(ctx, w)
	}
	if j.fresh() { // a flood of names over the budget must not reach the Storage
		if err := j.pay(); err != nil {
			return err
		}
	}
	if err := j.claimName(ctx, w.Turn); err != nil {
		return err
	}
	defer func() { j.set.release(j.claim) }()
	if !j.alone {
		j.stored = false
		if err := j.catchUp(ctx, w.Turn); err != nil || j.item != nil {
			return err
		}
	}
	j.read = false
	return j.attempt(ctx, w)
}

// attempt decides and orders.
func (j *job) attempt(ctx context.Context, w *schedule.Worker) (err error) {
	if j.read {
		var order *secret.Order
		if j.before, order, err = j.set.restore(ctx, w.Turn, j.spec); err != nil && later(err) {
			return err
		}
		if j.order == nil && !j.again {
			j.order, j.stored = order, order != nil && !j.held
		}
	}
	if j.order == nil { // one that was begun is decided and paid for
		if err := j.allowed(ctx, w.Turn); err != nil {
			return err
		}
		if err := j.begin(); err != nil {
			return err
		}
	}
	if !j.stored && !j.foreign {
		if err := j.save(ctx, w.Turn, j.before, j.order); err != nil && !j.unstored() {
			return fmt.Errorf("failed to store the order, which is therefore not sent: %w", err)
		}
	}
	j.sent = true
	if j.item, err = w.Signer.Obtain(ctx, j.order, j.accept); err != nil {
		if !j.order.Again(err) {
			j.forget(ctx, w.Turn)
		}
		return err
	}
	j.unsaved = j.save(ctx, w.Turn, j.item, nil) // the certificate is served, as it cannot be had back
	return nil
}

// unstored reports whether to send an order that cannot be stored: the alternative for a renewal is an
// outage. With a shared Storage that comes later.
func (j *job) unstored() bool { return j.held && (j.set.shared == nil || j.alone || j.urgent()) }

// allowed asks about a renewal, about a name of the last run, or after a refused order. A renewal is
// made if that cannot be determined.
func (j *job) allowed(ctx context.Context, turn call.Turn) error {
	if !j.matches() {
		return &refusal{Denied, errUnmatched}
	}
	if !j.ask {
		return nil
	}
	allowed, err := call.Do(ctx, askTimeout, turn, func(ctx context.Context) (bool, error) { return j.conf.Ask.Allowed(ctx, j.name) })
	switch {
	case err == nil && !allowed:
		return &refusal{Denied, errDenied}
	case err != nil && !j.held:
		return &refusal{Undecided, ca.Errorf(ca.Unavailable, "failed to decide about the name: %w", err)}
	}
	return nil
}

// matches reports whether a rule matches the name of a renewal: a file of names may have changed. While
// the file cannot be read, that is not known.
func (j *job) matches() bool {
	return !j.held && !j.read || j.set.match(j.name) != nil || j.conf.Patterns.Err() != nil
}

// fresh reports whether there is no record of the name, as far as is known, and no order.
func (j *job) fresh() bool {
	return j.set.indexed && !j.held && !j.kept && !j.again && j.order == nil
}

// begin makes the order, with its key.
func (j *job) begin() (err error) {
	if err = j.pay(); err == nil {
		j.order, err = secret.NewOrder(j.spec)
	}
	return err
}

// pay takes the order from the budget. A renewal counts if the order before it was refused.
func (j *job) pay() error {
	if j.paid || j.conf.Budget == nil || j.held && !j.again {
		return nil
	}
	if err := j.conf.Budget.Take(j.set.sched.Now(), j.name, []string{j.name}, j.conf.Account); err != nil {
		return &refusal{OverBudget, err}
	}
	j.paid = true
	return nil
}

// refund gives an order back to the budget that this attempt has not made.
func (j *job) refund() {
	if j.paid {
		j.paid = false
		j.conf.Budget.Refund(j.set.sched.Now(), j.name, []string{j.name}, j.conf.Account)
	}
}

// accept checks the identity of a certificate that was ordered.
func (j *job) accept(got pki.Identity) error { return isOf(got, j.name) }

// isOf returns an error unless a certificate is for the name: the rules of the authority may let it
// choose, and so may a record, which others can write in a shared Storage.
func isOf(got pki.Identity, name string) error {
	if !slices.Contains(got.DNSNames, name) {
		return &pki.CheckError{Check: "names", Detail: "the leaf is not for " + name}
	}
	return nil
}

// Land implements [schedule.Job].
func (j *job) Land(now time.Time) {
	s, e := j.set, j.entry
	if j.sent {
		e.rule.counts.orders++
	}
	e.stored = e.stored || j.saved
	if j.saved {
		delete(s.orphans, j.name)
	}
	e.late = false
	if e.Gone() {
		return
	}
	if j.saved {
		e.stale, e.known = e.stale && e.known != j.known, j.known
	}
	if errors.Is(j.err, secret.ErrClaimed) {
		s.postponed(j, now)
		return
	}
	if j.err != nil {
		s.failed(j)
		return
	}
	e.ordered()
	s.landed(j)
	switch {
	case !j.sent:
		e.stored = true
		delete(s.orphans, j.name)
		e.rule.counts.shared++
	case j.held:
		e.rule.counts.renewed++
	default:
		e.rule.counts.issued++
	}
	s.sched.Issued(e, j.item)
}
