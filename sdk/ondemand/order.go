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

	before *secret.Item  // held until now
	order  *secret.Order // nil: make a new one
	item   *secret.Item
	sent   bool // to the authority
	why    Refusal
	err    error
	// unsaved is why Storage may not have the item.
	unsaved error
}

// request returns the attempt for an entry that is due, unless its certificate is being stored.
func (s *Set) request(e *entry, now time.Time) schedule.Job {
	if e.saving {
		return nil
	}
	j := &job{
		set: s, entry: e, conf: e.rule.conf, spec: e.rule.spec(e.name), name: e.name, held: e.held(), before: e.Item, order: e.order,
		again: e.refused, kept: e.stored,
	}
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
	if j.read {
		var order *secret.Order
		if j.before, order, err = j.set.restore(ctx, w.Turn, j.spec); err != nil && later(err) {
			return err
		}
		if j.order == nil && !j.again {
			j.order = order
		}
	}
	stored := j.order != nil && j.kept && !j.held
	if j.order == nil { // one that was begun is decided and paid for
		if err := j.allowed(ctx, w.Turn); err != nil {
			return err
		}
		if err := j.begin(); err != nil {
			return err
		}
	}
	if !stored {
		if err := j.save(ctx, w.Turn, j.before, j.order); err != nil && !j.held {
			j.refund()
			return fmt.Errorf("failed to store the order, which is therefore not sent: %w", err)
		}
	}
	j.sent = true
	if j.item, err = w.Signer.Obtain(ctx, j.order, j.accept); err != nil {
		return err
	}
	j.unsaved = j.save(ctx, w.Turn, j.item, nil) // the certificate is served, as it cannot be had back
	return nil
}

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

// begin takes the order from the budget, and makes its key. A renewal counts if the order before
// it was refused.
func (j *job) begin() (err error) {
	if j.conf.Budget != nil && (!j.held || j.again) {
		if err := j.conf.Budget.Take(j.set.sched.Now(), j.name, []string{j.name}, j.conf.Account); err != nil {
			return &refusal{OverBudget, err}
		}
		j.paid = true
	}
	if j.order, err = secret.NewOrder(j.spec); err != nil {
		j.refund()
	}
	return err
}

// refund gives an order back to the budget that was not sent.
func (j *job) refund() {
	if j.paid {
		j.conf.Budget.Refund(j.set.sched.Now(), j.name, []string{j.name}, j.conf.Account)
	}
}

// accept checks that the certificate is for the name: the rules of the authority may let it choose.
func (j *job) accept(got pki.Identity) error {
	if !slices.Contains(got.DNSNames, j.name) {
		return &pki.CheckError{Check: "names", Detail: "the leaf is not for " + j.name}
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
	if j.err != nil {
		s.failed(j)
		return
	}
	e.failure, e.order, e.refused, e.denied = nil, nil, false, false
	s.landed(j)
	if j.held {
		e.rule.counts.renewed++
	} else {
		e.rule.counts.issued++
	}
	s.sched.Issued(e, j.item)
}
