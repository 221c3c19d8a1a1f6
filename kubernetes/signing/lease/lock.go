package lease

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var (
	errUnsettled = errors.New("calls are still in flight, so the Lease is left to expire")
	errAnothers  = errors.New("another replica holds the Lease")
)

// lock is the Lease as client-go's elector uses it in one term. It bounds each request, and
// tells the term what the elector does not: when a renewal was sent, and that another holds
// the Lease, of which the elector would only think that the renewal failed.
type lock struct {
	resourcelock.Interface
	lease   *Lease
	term    *term
	timeout time.Duration
}

// Get implements [resourcelock.Interface].
func (k *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	record, raw, err := k.Interface.Get(ctx)
	if err == nil && !k.lease.seen(record.HolderIdentity) && k.term.begun() {
		k.term.end()
	}
	if !apierrors.IsNotFound(err) {
		k.note(ctx, err)
	}
	return record, raw, err
}

// Create implements [resourcelock.Interface]. A Lease that was deleted is its holder's to make anew.
func (k *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := k.lease.vacant(); err != nil {
		k.note(ctx, err)
		return err
	}
	return k.hold(ctx, func(ctx context.Context) error { return k.Interface.Create(ctx, record) })
}

// Update implements [resourcelock.Interface]. A record without a holder releases the Lease.
func (k *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != "" {
		return k.hold(ctx, func(ctx context.Context) error { return k.Interface.Update(ctx, record) })
	}
	switch {
	case !k.term.settled(): // the elector has given up while lead still runs
		return errUnsettled
	case k.lease.lost(): // a leader that was stopped wakes up: its elector still believes in what it saw before
		return errAnothers
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	err := k.Interface.Update(ctx, record)
	if err == nil {
		k.lease.cfg.Log.Info("released the Lease", "lease", k.lease.name())
	}
	return err
}

// hold acquires or renews the Lease.
func (k *lock) hold(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	sent, wall := time.Now(), k.term.now()
	err := write(ctx)
	if err == nil {
		k.lease.seen(k.Identity())
		k.term.renewed(sent, wall)
	}
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another was faster
		k.note(ctx, err)
	}
	return err
}

// note leaves out requests that we have ended.
func (k *lock) note(ctx context.Context, err error) {
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) {
		k.lease.note(err)
	}
}
