package ondemand

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// claimAgain is the pause before a name is claimed again that another machine has claimed, and
	// up to as much again.
	claimAgain = time.Second
	// releaseTimeout bounds the end of a claim.
	releaseTimeout = 2 * time.Second
	// changesAgain is the pause after a failure to follow the changes of others.
	changesAgain = time.Second
	// renewalSpread is the part of the time between renewal and end by which machines that did not order
	// the certificate renew it later, mostSpread its bound.
	renewalSpread, mostSpread = 0.05, time.Hour
	// lastPart is the part of the time between renewal and end in which a machine renews without a
	// claim if the storage is away.
	lastPart = 3
)

var errClaimLost = ca.Errorf(ca.Unavailable, "the claim of the name could not be kept, so that another machine may have it by now")

// term is what a record says of its certificate, in seconds since 1970; zero without one.
type term struct{ renew, ends int64 }

func termOf(e secret.Entry) term {
	if e.Ends.IsZero() {
		return term{}
	}
	return term{e.Renew.Unix(), e.Ends.Unix()}
}

// spread returns when this machine renews a certificate of a shared record.
func spread(renew, ends time.Time) time.Time {
	most := min(time.Duration(float64(ends.Sub(renew))*renewalSpread), mostSpread)
	if most <= 0 {
		return renew
	}
	return renew.Add(rand.N(most))
}

// followChanges follows the changes of other machines until Close.
func (s *Set) followChanges() {
	turn := call.NewTurn()
	for !s.sched.Closed() {
		_, err := call.Do(s.sched.Context, 0, turn, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.shared.Changes(ctx, s.changed)
		})
		s.sched.Lock()
		if !s.closed {
			s.sched.Complain("cannot follow which certificates other machines have stored", err)
		}
		s.sched.Unlock()
		select {
		case <-s.sched.Context.Done():
		case <-time.After(changesAgain):
		}
	}
}

// changed takes the change of a record.
func (s *Set) changed(kept secret.Entry, deleted bool) {
	s.sched.Lock()
	defer s.sched.Unlock()
	e := s.names[kept.Name]
	delete(s.orphans, kept.Name)
	switch {
	case s.closed, deleted && e == nil:
	case deleted:
		s.unstored(e)
	case e != nil:
		e.stored = true
		if now := termOf(kept); e.known != now {
			e.known, e.stale = now, !kept.Ends.IsZero()
			s.sched.Schedule(e)
		}
	default: // an order that another machine has begun is continued once a client asks for the name
		s.orphans[kept.Name] = orphan{Entry: kept}
		if r := s.match(kept.Name); r != nil && !kept.Ends.IsZero() {
			s.claim(kept.Name, r, s.sched.Now())
		}
	}
}

// unstored takes the deletion of a record by another machine. A certificate that clients of this
// machine use is served and renewed as before.
func (s *Set) unstored(e *entry) {
	e.stored, e.known, e.stale = false, term{}, false
	switch {
	case e.asking():
	case e.watchers.Len() == 0:
		s.sched.Remove(e)
	case e.Item == nil && e.held():
		e.Rotation.Release()
		e.decided = false
		e.recount()
		if e.waiting {
			s.decide(e)
		}
		s.sched.Schedule(e)
	}
}

// refresh takes over the certificate that another machine has stored.
func (s *Set) refresh(e *entry, now time.Time) {
	if e.asking() || e.Rotation.Waiting() || !e.again.Over(rotation.Now(now)) {
		return
	}
	if e.Item != nil {
		s.read(e)
		return
	}
	e.stale = false
	if e.known == (term{}) {
		return
	}
	e.rule.counts.shared++
	e.ordered()
	renew, ends := time.Unix(e.known.renew, 0), time.Unix(e.known.ends, 0)
	e.Rotation.Hold(rotation.Term{Renew: spread(renew, ends), Ends: ends})
	e.decided = true
	e.recount()
}

// newer reports whether a shared record has a certificate that replaces the one in memory. A record
// of before, put back, does not.
func newer(item, held *secret.Item) bool {
	return held == nil || item.Fingerprint != held.Fingerprint && item.NotBefore.After(held.NotBefore)
}

// claimName claims the name of the attempt. Near the end of a certificate that is held, the attempt does
// without the claim if the storage is away: other machines may then order one, too.
func (j *job) claimName(ctx context.Context, turn call.Turn) (err error) {
	j.claim, err = j.set.claimRecord(ctx, turn, j.name)
	switch {
	case err == nil, errors.Is(err, secret.ErrClaimed):
		return err
	case later(err) && j.urgent():
		j.alone = true
		return nil
	}
	j.early = true
	return err
}

// urgent reports whether a renewal cannot wait until the storage is back.
func (j *job) urgent() bool {
	if !j.held {
		return false
	}
	left := j.term.Ends.Sub(j.set.sched.Now())
	return left < j.term.Ends.Sub(j.term.Renew)/lastPart
}

// claimRecord claims a name.
func (s *Set) claimRecord(ctx context.Context, turn call.Turn, name string) (secret.Claim, error) {
	return call.Do(ctx, storageTimeout, turn, func(ctx context.Context) (secret.Claim, error) {
		claim, err := s.shared.Claim(ctx, name)
		if err == nil && ctx.Err() != nil { // too late: this attempt has ended
			s.release(claim)
			return nil, context.Cause(ctx)
		}
		return claim, err
	})
}

// release ends a claim, also while the Set closes. If it fails, the claim runs out.
func (s *Set) release(claim secret.Claim) {
	if claim == nil {
		return
	}
	_, err := call.Do(context.Background(), releaseTimeout, call.NewTurn(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, claim.Release(ctx)
	})
	if err != nil {
		s.sched.Lock()
		defer s.sched.Unlock()
		s.sched.Complain("cannot release the claim of a name; it runs out", err)
	}
}

// catchUp reads the record of a name that was claimed: another machine may have renewed the certificate,
// or have left an order to continue.
func (j *job) catchUp(ctx context.Context, turn call.Turn) error {
	item, order, err := j.readRecord(ctx, turn)
	switch {
	case err != nil && later(err) && !j.urgent():
		j.early = true
		return err
	case item != nil && newer(item, j.before):
		j.item = item
		return nil
	}
	if order != nil && !order.Same(j.vain) {
		j.order, j.stored = order, true
		j.refund() // the machine that made it has paid
	}
	return nil
}

// readRecord reads the record of a name that was claimed. While it has a certificate below a root that this
// machine does not have, it waits for the authority's roots, a few seconds.
func (j *job) readRecord(ctx context.Context, turn call.Turn) (item *secret.Item, order *secret.Order, err error) {
	for tries := 1; ; tries++ {
		var record secret.Record
		if record, err = j.set.load(ctx, turn, j.name); err != nil {
			j.foreign = later(err)
		} else {
			item, order, err = j.set.verify(j.spec, record)
			j.foreign = err != nil
		}
		if !secret.Untrusted(err) || tries >= readTries {
			return item, order, err
		}
		select {
		case <-time.After(readAgain):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// forget takes an order that was refused out of the record, so that no machine sends it again.
func (j *job) forget(ctx context.Context, turn call.Turn) {
	if j.claim == nil || j.foreign && !j.stored {
		return
	}
	if j.before != nil {
		_ = j.save(ctx, turn, j.before, nil)
		return
	}
	_, _ = call.Do(ctx, storageTimeout, turn, func(ctx context.Context) (struct{}, error) {
		if !j.claim.Held() {
			return struct{}{}, errClaimLost
		}
		return struct{}{}, j.set.cfg.Storage.Delete(ctx, j.name)
	})
	j.saved = false
}

// saveShared stores a certificate again, unless another machine has stored a newer one.
func (j *job) saveShared(ctx context.Context, turn call.Turn) (err error) {
	if j.claim, err = j.set.claimRecord(ctx, turn, j.name); err != nil {
		return err
	}
	defer func() { j.set.release(j.claim) }()
	item, _, err := j.set.restore(ctx, turn, j.spec)
	switch {
	case err != nil && later(err):
		return err
	case item != nil && newer(item, j.item):
		j.overtaken = true
		return nil
	}
	return j.save(ctx, turn, j.item, j.order)
}

// postponed ends an attempt for a name that another machine has claimed. Its record wakes the entry
// sooner.
func (s *Set) postponed(j *job, now time.Time) {
	e := j.entry
	wait := max(claimAgain, ca.RetryAfter(j.err))
	wait = min(wait+rand.N(claimAgain), e.rule.conf.Wait/2)
	e.Rotation.Postponed()
	e.Rotation.RetryIn(rotation.Now(now), wait)
	s.sched.Schedule(e)
}

// discardShared deletes the record of a name that this Set has dropped, unless another machine has
// claimed the name or has stored another certificate.
func (s *Set) discardShared(ctx context.Context, turn call.Turn, name string, d *deletion) error {
	claim, err := s.claimRecord(ctx, turn, name)
	if errors.Is(err, secret.ErrClaimed) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.release(claim)
	record, err := s.load(ctx, turn, name)
	var item *secret.Item
	if err == nil {
		item, _, err = s.verify(d.spec, record)
	}
	switch {
	case err != nil && later(err):
		return err
	case item != nil && (item.NotAfter.Unix() != d.known.ends || d.known == term{}):
		return nil
	case err != nil && !s.ended(record, d.known, claim.Made()): // others may be able to use it
		return nil
	case !claim.Held():
		return errClaimLost
	}
	_, err = call.Do(ctx, storageTimeout, turn, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.cfg.Storage.Delete(ctx, name)
	})
	return err
}

// ended reports whether the certificate of a record has ended, both by the clock of this machine and by
// that of the storage: a machine whose clock is far ahead must not delete what the others use.
func (s *Set) ended(r secret.Record, known term, now time.Time) bool {
	if known == (term{}) {
		return false
	}
	ends := time.Unix(known.ends, 0)
	if chain, _, err := secret.KeptPair(r); err == nil { // which may be a newer one
		if certs, err := pki.ParseCertificates(chain); err == nil && len(certs) > 0 {
			ends = certs[0].NotAfter
		}
	}
	return !now.Before(ends) && !s.sched.Now().Before(ends)
}
