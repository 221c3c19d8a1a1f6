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
	// minLife limits requests to an authority whose certificates live only for moments.
	minLife = time.Second
	// calm is how long roots must leave the certificate alone before its next loss is
	// handled at once.
	calm = time.Minute
)

// leaf is one KeyPair secret. Its goroutine, run, owns every field that is neither atomic
// nor fixed. It makes no outside call itself: an attempt makes them, one at a time, and
// reports back.
type leaf struct {
	*slot
	spec    Spec
	choices []*choice // in fallback order
	now     func() time.Time
	observe func(Event)
	log     *slog.Logger
	taken   map[string]bool // the names of all secrets; read-only
	keeper  *keeper
	keys    KeySource // nil: generate keys in process

	wakeup  chan struct{}
	inbox   chan func()
	replies chan *attempt
	spawn   func(func())
	stop    <-chan struct{} // closed when run must end
	report  atomic.Pointer[Status]

	at     int      // index in choices of the authority to ask next
	flight *attempt // in flight
	order  *order   // for the next attempt, if it is a retry
	next   *attempt // succeeded, but the certificate is not valid yet
	held   *pki.Chain
	by     *choice // who signed held
	renew  time.Time
	stray  stray // whether held still chains to a served root
	anchor anchored

	credential credential

	retry    retry
	pause    pause
	again    bool // something changed while an attempt was in flight
	failure  *Failure
	mourned  bool // the expiry was reported
	released bool
	restored bool // held comes from the last run
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

// step does what is due at the current time.
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

// due reports whether to request a certificate or look for a later token. It goes by the
// wall clock: setting the clock back causes no second request, setting it forward past the
// renewal causes the first.
func (l *leaf) due(now time.Time) bool {
	if l.flight != nil || l.next != nil || l.released || !l.pause.over(now) {
		return false
	}
	return l.needed(now) || l.credential.mustLook(now)
}

// needed reports whether a new certificate is due, because none is held or the held one
// must be replaced.
func (l *leaf) needed(now time.Time) bool {
	return l.held == nil || l.stray.lost || l.anchor.lost || !now.Before(l.renew)
}

// onlyLast reports whether the next attempt should sign only if its token has no
// successor. It is false while a certificate is needed: such an attempt could return
// empty-handed and start again at once.
func (l *leaf) onlyLast() bool { return !l.needed(l.now()) && l.at == 0 }

// sleep returns the time until something is due. What is past due is already in hand.
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
		sooner(l.held.Leaf.NotAfter.Sub(now) + 1) // valid through NotAfter itself
	}
	return d
}

// install serves the certificate of l.next, which is now valid.
func (l *leaf) install(now time.Time) {
	a := l.next
	l.next = nil
	if !a.chain.Leaf.NotAfter.After(now) {
		return // the clock jumped past it
	}
	item, err := a.item(l.spec, a.by.Name)
	if err != nil {
		a.err = err
		l.fail(a)
		return
	}
	if l.by != nil && l.by != a.by {
		l.by.forget(l) // keep no roots for a certificate that is no longer held
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

// drawRenewal draws the time at which to renew the certificate. It is drawn once: drawing
// again at every look would bunch renewals at the early edge of the jitter. The lifetime
// counts from now, as authorities backdate certificates.
func drawRenewal(spec Spec, chain *pki.Chain, now time.Time) time.Time {
	life := chain.Leaf.NotAfter.Sub(now)
	ratio := spec.RenewRatio + spec.RenewJitter*(2*rand.Float64()-1)
	wait := time.Duration(float64(life) * (1 - max(0, min(1, ratio))))
	return now.Add(max(wait, minLife))
}

// mourn reports once that the held certificate has expired. Those that have it keep it;
// new callers do not get it.
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

// status returns the last report, adjusted to the current time.
func (l *leaf) status() Status {
	now := statusOf(l.spec, l.item.Load(), l.now())
	if s := l.report.Load(); s != nil {
		now.Rotations, now.Asking, now.Released, now.Failure = s.Rotations, s.Asking, s.Released, s.Failure
		now.TokenExpiry, now.Restored = s.TokenExpiry, s.Restored
	}
	return now
}

// nudge wakes the goroutine.
func (l *leaf) nudge() {
	select {
	case l.wakeup <- struct{}{}:
	default: // a wake-up is pending
	}
}
