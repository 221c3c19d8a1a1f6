package secret

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// minLife keeps an authority that signs for moments only from being asked all
	// the time.
	minLife = time.Second
	// calm is how long roots must have left the certificate alone for its next loss
	// to be answered at once.
	calm = time.Minute
)

// leaf is one KeyPair secret. Its goroutine, run, owns all that is not atomic or
// fixed and makes no outside call itself: those are made by an attempt, one at a
// time, which reports back.
type leaf struct {
	*slot
	spec    Spec
	choices []*choice // in the order in which they are asked
	now     func() time.Time
	observe func(Event)
	log     *slog.Logger
	taken   map[string]bool // the names of all secrets here; not changed
	keeper  *keeper
	keys    KeySource // nil: keys are made here

	wakeup  chan struct{}
	inbox   chan func()
	replies chan *attempt
	spawn   func(func())
	stop    <-chan struct{} // closed when run is to end
	report  atomic.Pointer[Status]

	at     int      // whom of choices the next attempt asks
	flight *attempt // on its way
	order  *order   // for the next attempt, if that is a retry
	next   *attempt // successful, its certificate not valid yet
	held   *pki.Chain
	by     *choice // who signed what is held
	renew  time.Time
	stray  stray // whether held still leads to a root that is served
	anchor anchored

	credential credential

	retry    retry
	pause    pause
	again    bool // something changed while an attempt was on its way
	failure  *Failure
	mourned  bool // the expiry was told
	released bool
	restored bool // what is held is from the last run
	count    int
}

// run owns the secret until ctx ends.
func (l *leaf) run(ctx context.Context) {
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		l.step(ctx)
		timer.Reset(l.sleep())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.wakeup:
		case f := <-l.inbox:
			f()
		case a := <-l.replies:
			l.settle(a)
		}
	}
}

// step does what is due by the clock.
func (l *leaf) step(ctx context.Context) {
	now := l.now()
	if l.next != nil && !l.next.chain.Leaf.NotBefore.After(now) {
		l.install(now)
	}
	l.mourn(now)
	if l.released && l.watched() {
		l.released = false
	}
	l.checkRoots(now)
	l.checkAnchor(now)
	if l.due(now) {
		l.ask(ctx)
	}
	l.publish(now)
}

// due tells whether a certificate is to be asked for now, or a later token to be
// looked for. It goes by the wall clock: one that was set back makes no second
// request, one that was set forward makes the first.
func (l *leaf) due(now time.Time) bool {
	if l.flight != nil || l.next != nil || l.released || !l.pause.over(now) {
		return false
	}
	return l.needed(now) || l.credential.mustLook(now)
}

// needed tells whether what is held, or that nothing is, calls for a certificate.
func (l *leaf) needed(now time.Time) bool {
	return l.held == nil || l.stray.lost || l.anchor.lost || !now.Before(l.renew)
}

// onlyLast tells whether the next attempt is to be made only where its token has no
// successor. It is never so while a certificate is needed, as who looks at tokens then
// comes back with nothing, and at once again.
func (l *leaf) onlyLast() bool { return !l.needed(l.now()) && l.at == 0 }

// sleep is the time until something is due; what is past is in hand already.
func (l *leaf) sleep() time.Duration {
	now, d := l.now(), look
	sooner := func(wait time.Duration) {
		if wait > 0 {
			d = min(d, wait)
		}
	}
	sooner(l.pause.left())
	if l.next != nil {
		sooner(l.next.chain.Leaf.NotBefore.Sub(now))
	}
	if l.held != nil {
		sooner(l.renew.Sub(now))
		sooner(l.credential.look.Sub(now))
		sooner(l.held.Leaf.NotAfter.Sub(now) + 1) // valid to its last moment
	}
	return d
}

// install serves the certificate of l.next, whose time has come.
func (l *leaf) install(now time.Time) {
	a := l.next
	l.next = nil
	if !a.chain.Leaf.NotAfter.After(now) {
		return // the clock jumped over it
	}
	item, err := a.item(l.spec, a.by.Name)
	if err != nil {
		a.err = err
		l.fail(a)
		return
	}
	if l.by != nil && l.by != a.by {
		l.by.forget(l) // its roots need not be kept for what is no longer held
	}
	l.by = a.by
	l.held, l.renew, l.mourned, l.failure = a.chain, drawRenewal(l.spec, a.chain, now), false, nil
	l.restored = false
	l.stray.home()
	l.anchor = anchored{}
	l.credential = l.credential.after(a, now, l.renew)
	l.count++
	item.Issued, item.RenewAt = now, l.renew
	l.put(item)
	l.keep(item)
	l.log.Info("serving new certificate", "authority", a.by.Name, "identity", item.Identity.String(), "serial", item.Serial,
		"fingerprint", item.Fingerprint, "signer", item.Signer, "not_after", item.NotAfter, "renew_at", item.RenewAt)
	l.tell(a.by.authority, Event{Type: Rotated, NotAfter: item.NotAfter})
}

// drawRenewal draws the moment at which the certificate is to be renewed, once:
// drawn again at every look, jitter would bunch at its early edge. The lifetime
// counts from now, as authorities date certificates back.
func drawRenewal(spec Spec, chain *pki.Chain, now time.Time) time.Time {
	life := chain.Leaf.NotAfter.Sub(now)
	ratio := spec.RenewRatio + spec.RenewJitter*(2*rand.Float64()-1)
	wait := time.Duration(float64(life) * (1 - max(0, min(1, ratio))))
	return now.Add(max(wait, minLife))
}

// mourn tells once that what is held has expired. It stays with those who have
// it, and nobody new gets it.
func (l *leaf) mourn(now time.Time) {
	if l.held == nil || l.mourned || !now.After(l.held.Leaf.NotAfter) {
		return
	}
	l.mourned = true
	l.log.Error("certificate expired before it could be renewed", "not_after", l.held.Leaf.NotAfter)
	l.tell(l.signer(), Event{Type: Expired, NotAfter: l.held.Leaf.NotAfter})
}

func (l *leaf) tell(by *authority, e Event) {
	e.Secret, e.Authority = l.spec.Name, by.Name
	l.observe(e)
}

func (l *leaf) publish(now time.Time) {
	s := statusOf(l.spec, l.item.Load(), now)
	s.Rotations, s.Asking, s.Released, s.Failure = l.count, l.flight != nil, l.released, l.failure
	s.Restored = l.restored
	s.TokenExpiry = l.credential.ends
	l.report.Store(&s)
}

// status returns the last report, with the clock as it is now.
func (l *leaf) status() Status {
	now := statusOf(l.spec, l.item.Load(), l.now())
	if s := l.report.Load(); s != nil {
		now.Rotations, now.Asking, now.Released, now.Failure = s.Rotations, s.Asking, s.Released, s.Failure
		now.TokenExpiry, now.Restored = s.TokenExpiry, s.Restored
	}
	return now
}

// nudge has the goroutine look again.
func (l *leaf) nudge() {
	select {
	case l.wakeup <- struct{}{}:
	default: // it will, already
	}
}
