package secret

import (
	"context"
	"crypto/x509"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// look is the longest interval between looks at the clock: a suspend or a clock jump fires
// no timer.
const look = 30 * time.Second

// maxAttempts bounds the attempts at one authority that run at once. Each has several
// goroutines, and thousands of secrets may be due together.
const maxAttempts = 256

// authority keeps the roots of one authority, independent of the certificates they sign.
// Its goroutine, run, owns every field that is neither atomic nor fixed.
//
// An authority lives over a reload, which sends it a new plan. One that is configured no
// more lives on until its last root may go; see retire.
type authority struct {
	worker
	*engine
	Name    string
	log     *slog.Logger
	plan    atomic.Pointer[authorityPlan]
	retired bool
	running chan struct{} // one for each attempt that runs

	feed    *feed
	serving // for all goroutines
	intake
	issued

	roots    rootSet   // what the authority said of them
	ends     deadlines // when each held certificate ends, the last first
	recorded []byte    // the last content given to the keeper
	// restoring is when the last certificate of the last run may end, until all are
	// restored or refused.
	restoring time.Time
}

// serving are the roots that are served. The authority's goroutine writes them.
type serving struct {
	bundle atomic.Pointer[pki.Bundle]
	served atomic.Pointer[time.Time] // when roots were first available; nil: none yet
	shown  atomic.Pointer[[]Root]    // the contents of bundle, for the status
}

// intake remembers what the authority sent last, as thousands of replies bring the same.
type intake struct {
	parsed                    atomic.Pointer[replied]
	uselessRoots, besideChain leftOut // and not served
}

// authorityPlan is what an authority is configured to be. It does not change once it is in force; a
// reload brings another.
type authorityPlan struct {
	*Authority
	bundles []*trustBundle // that have its roots
	leaves  []*leaf        // that it may sign
}

func newAuthority(m *Manager, p *authorityPlan) *authority {
	a := &authority{
		worker: newWorker(m.ctx), engine: &m.engine, Name: p.Name, log: loglimit.Limit(m.config.Log).With("authority", p.Name),
		running: make(chan struct{}, maxAttempts), feed: newFeed(), issued: issued{standIn: &leaf{}},
		ends: deadlines{latest: true},
	}
	a.plan.Store(p)
	return a
}

// settings returns the settings in force. Nobody may modify them.
func (a *authority) settings() *Authority { return a.plan.Load().Authority }

// run owns the roots until the authority ends.
func (a *authority) run() {
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		timer.Reset(a.sleep())
		select {
		case <-a.ctx.Done():
			a.feed.stop()
			return
		case f := <-a.inbox:
			f()
		case <-timer.C:
			a.publish()
		}
	}
}

func (a *authority) sleep() time.Duration {
	now := a.now()
	if next := a.roots.next(now); !next.IsZero() {
		return min(look, next.Sub(now))
	}
	return look
}

// do runs f in run and returns after the result is published. It does nothing once the
// authority has ended.
func (a *authority) do(f func()) { a.quietly(func() { f(); a.publish() }) }

// quietly is do that publishes nothing.
func (a *authority) quietly(f func()) { a.worker.do(f) }

// publish serves the current roots. It updates the bundles first and then nudges the
// leaves, which may need a new certificate. It serves an empty set only where the operator
// took the last root away.
func (a *authority) publish() {
	before, after := a.bundle.Load(), a.roots.served(rotation.Now(a.now())).Filter(a.allowed)
	changed := !after.Equal(before) && (after.Len() > 0 || a.retired || before.Filter(a.allowed).Len() == 0)
	if changed || after.Len() > 0 {
		a.show(after)
	}
	a.adopted.Store(a.roots.replied)
	if changed {
		a.bundle.Store(after)
		if now := time.Now(); a.served.Load() == nil {
			a.served.Store(&now)
		}
		a.report(before, after)
	}
	for _, b := range a.plan.Load().bundles {
		b.refresh()
	}
	a.store(after)
	if changed {
		for _, l := range a.plan.Load().leaves {
			l.nudge()
		}
	}
	if a.retired && after.Len() == 0 {
		a.cancel()
	}
}

// valid returns the roots of its bundle that have not expired. The bundle keeps the last set
// beyond its end.
func (a *authority) valid() *pki.Bundle {
	now := a.now()
	return a.bundle.Load().Filter(func(cert *x509.Certificate) bool { return cert.NotAfter.After(now) })
}

// allowed reports whether the pins let a root be served.
func (a *authority) allowed(cert *x509.Certificate) bool { return a.settings().pinned(cert) }

func (a *authority) report(before, after *pki.Bundle) {
	added, removed := without(after, before), without(before, after)
	a.logRoots("root added", "roots added", added)
	a.logRoots("root removed", "roots removed", removed)
	for _, cert := range added {
		a.observe(Event{Kind: RootAdded, Authority: a.Name, Fingerprint: pki.Fingerprint(cert)})
	}
	for _, cert := range removed {
		a.observe(Event{Kind: RootRemoved, Authority: a.Name, Fingerprint: pki.Fingerprint(cert)})
	}
}

func without(b, minus *pki.Bundle) []*x509.Certificate {
	return slices.DeleteFunc(b.Certificates(), minus.Contains)
}

func rootAttrs(cert *x509.Certificate) []any {
	return []any{"fingerprint", pki.Fingerprint(cert), "subject", text.Clean(cert.Subject.String()), "not_after", cert.NotAfter}
}

// admit returns the roots that may be served: unexpired CA certificates that, if there are
// pins, are pinned.
func (a *authority) admit(conf *Authority, pemBytes []byte) (*pki.Bundle, error) {
	all, unusable, err := a.parse(pemBytes)
	if err != nil {
		return nil, err
	}
	a.uselessRoots.warn(a.log, "roots left out", unusable)
	now := a.now()
	valid := all.Filter(func(cert *x509.Certificate) bool { return cert.NotAfter.After(now) })
	roots := valid.Filter(conf.pinned)
	if out := without(all, roots); len(out) > 0 {
		a.log.Warn("roots ignored", "expired", all.Len()-valid.Len(), "not_pinned", valid.Len()-roots.Len(), "fingerprints", shortPrints(out))
	}
	switch {
	case valid.Len() == 0:
		return nil, &pki.CheckError{Check: "roots", Detail: "all of them have expired"}
	case roots.Len() == 0:
		return nil, pki.NotPinned(valid)
	}
	return roots, nil
}

// keptUntil returns when to remove a root that is dropped now.
func (a *authority) keptUntil() time.Time {
	if overlap := a.settings().RootOverlap; overlap != nil {
		return a.now().Add(*overlap)
	}
	return a.lastEnd()
}

// lastEnd returns when the last certificate held from this authority or issued through a
// [Signer] ends; zero if there are none.
func (a *authority) lastEnd() (last time.Time) {
	if standIn := a.issuedUntil.Load(); standIn > 0 {
		last = time.Unix(0, standIn)
	}
	_, end, _ := a.ends.first()
	return clock.Later(clock.Later(last, end), a.restoring)
}

// ownOverlap is the shortest time to keep a root that a new certificate needs.
func (a *authority) ownOverlap() time.Duration {
	if overlap := a.settings().RootOverlap; overlap != nil {
		return *overlap
	}
	return time.Minute // a preview accepts any positive duration
}

// forget stops keeping roots for the certificate of l.
func (a *authority) forget(l *leaf) {
	a.do(func() { a.ends.drop(l) })
}

// configure takes a new plan, and starts to learn the roots anew. It publishes nothing:
// the bundles change once all authorities know theirs.
func (a *authority) configure(p *authorityPlan) {
	a.quietly(func() {
		a.plan.Store(p)
		if a.feed.mute.Load() {
			a.assume()
		}
		a.learn()
	})
}

// learn starts the feed, or starts it over.
func (a *authority) learn() {
	a.feed.stop()
	ctx, cancel := context.WithCancel(a.ctx)
	a.feed.stop = cancel
	l := a.listener()
	a.spawn(func() { l.run(ctx) })
}

// assume takes the pinned roots as those of an authority that sends roots only in replies,
// so that peers can learn them before it has signed.
func (a *authority) assume() {
	pins := a.settings().PinnedRoots
	if pins == nil || a.roots.current().Filter(a.allowed).Len() > 0 { // roots of the last run do not count
		return
	}
	roots := pins.Filter(func(cert *x509.Certificate) bool { return cert.NotAfter.After(a.now()) })
	a.roots.reply(roots, time.Now(), a.keptUntil)
}

// retire drops all roots of an authority that was removed from the configuration, and never calls
// it again. The roots stay for the overlap, in those of their bundles that remain.
func (a *authority) retire(remain *authorityPlan) {
	a.quietly(func() {
		a.feed.stop()
		a.plan.Store(remain)
		a.retired = true
		a.roots.leave(a.keptUntil)
	})
}

// over reports whether a retired authority has no more roots to keep.
func (a *authority) over() bool { return a.ctx.Err() != nil }
