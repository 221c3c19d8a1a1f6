package secret

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// look is the longest interval between looks at the clock: a suspend or a clock jump fires
// no timer.
const look = 30 * time.Second

// authority keeps the roots of one authority, independent of the certificates they sign.
// Its goroutine, run, owns every field that is neither atomic nor fixed.
type authority struct {
	Authority
	now     func() time.Time
	observe func(Event)
	log     *slog.Logger

	inbox chan func()
	stop  <-chan struct{} // closed when the Manager ends
	asks  turn            // for RootSource and RootWatcher
	poke  chan struct{}   // wakes the feed

	kicked  atomic.Bool   // tells the feed to start over
	heard   chan struct{} // closed when roots arrived, or will not
	bundle  atomic.Pointer[pki.Bundle]
	served  atomic.Pointer[time.Time] // when roots were first available; nil: none yet
	shown   atomic.Pointer[[]Root]    // the contents of bundle, for the status
	failure atomic.Pointer[Failure]   // the feed's last failure

	// For certificates that a Signer obtains; see vouch.
	lent      *leaf                      // stands for all of them
	lentUntil atomic.Int64               // the latest NotAfter, in nanoseconds of Unix time
	last      atomic.Pointer[replied]    // the roots of the last reply
	taken     atomic.Pointer[pki.Bundle] // the reply roots now in roots

	leaves  []*leaf // fixed once running
	bundles []*trustBundle

	keeper   *keeper
	recorded []byte // the last content given to the keeper

	roots rootSet
	ends  map[*leaf]time.Time // NotAfter of each held certificate
}

func newAuthority(a Authority, c Config, k *keeper, stop <-chan struct{}) *authority {
	return &authority{
		Authority: a.withDefaults(), now: c.Now, observe: c.Observe, log: loglimit.Limit(c.Log).With("authority", a.Name),
		inbox: make(chan func()), stop: stop, asks: newTurn(), poke: make(chan struct{}, 1),
		heard: make(chan struct{}), keeper: k, ends: make(map[*leaf]time.Time), lent: &leaf{},
	}
}

// run owns the roots until the Manager ends.
func (a *authority) run() {
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		timer.Reset(a.sleep())
		select {
		case <-a.stop:
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
// Manager has ended.
func (a *authority) do(f func()) {
	done := make(chan struct{})
	select {
	case a.inbox <- func() { defer close(done); f(); a.publish() }:
		<-done
	case <-a.stop:
	}
}

// publish serves the current roots. It updates the bundles first and then nudges the
// leaves, which may need a new certificate. It never serves an empty set.
func (a *authority) publish() {
	before, after := a.bundle.Load(), a.roots.served(a.now())
	if after.Len() > 0 {
		a.show(after)
	}
	a.taken.Store(a.roots.replied)
	changed := after.Len() > 0 && !after.Equal(before)
	if changed {
		a.bundle.Store(after)
		if now := time.Now(); before == nil {
			a.served.Store(&now)
		}
		a.report(before, after)
	}
	for _, b := range a.bundles {
		b.refresh()
	}
	a.keep(after)
	if changed {
		for _, l := range a.leaves {
			l.nudge()
		}
	}
}

func (a *authority) report(before, after *pki.Bundle) {
	added, removed := without(after, before), without(before, after)
	a.logRoots("root added", "roots added", added)
	a.logRoots("root removed", "roots removed", removed)
	for _, cert := range added {
		a.observe(Event{Type: RootAdded, Authority: a.Name, Fingerprint: pki.Fingerprint(cert)})
	}
	for _, cert := range removed {
		a.observe(Event{Type: RootRemoved, Authority: a.Name, Fingerprint: pki.Fingerprint(cert)})
	}
}

func without(b, minus *pki.Bundle) []*x509.Certificate {
	return slices.DeleteFunc(b.Certificates(), minus.Contains)
}

func rootAttrs(cert *x509.Certificate) []any {
	return []any{"fingerprint", pki.Fingerprint(cert), "subject", text.Clean(cert.Subject.String()), "not_after", cert.NotAfter}
}

// told takes roots from a RootSource or RootWatcher.
func (a *authority) told(pemBytes []byte) error {
	roots, err := a.admit(pemBytes)
	if err != nil {
		return err
	}
	a.do(func() { a.roots.tell(roots, time.Now(), a.keptUntil) })
	return nil
}

// admit returns the roots that may be served: unexpired CA certificates that, if there are
// pins, are pinned.
func (a *authority) admit(pemBytes []byte) (*pki.Bundle, error) {
	all, err := parseRoots(pemBytes)
	if err != nil {
		return nil, err
	}
	now := a.now()
	valid := all.Filter(func(cert *x509.Certificate) bool { return cert.NotAfter.After(now) })
	roots := valid.Filter(func(cert *x509.Certificate) bool { return a.PinnedRoots == nil || a.PinnedRoots.Contains(cert) })
	if out := without(all, roots); len(out) > 0 {
		a.log.Warn("roots ignored", "expired", all.Len()-valid.Len(), "not_pinned", valid.Len()-roots.Len(), "fingerprints", shortPrints(out))
	}
	if roots.Len() == 0 {
		return nil, &pki.CheckError{Check: "roots", Detail: "all of them have expired or are not among the pinned roots"}
	}
	return roots, nil
}

// keptUntil returns when to remove a root that is dropped now.
func (a *authority) keptUntil() time.Time {
	if a.RootOverlap != nil {
		return a.now().Add(*a.RootOverlap)
	}
	return a.lastEnd()
}

// lastEnd returns the latest NotAfter of the certificates held from this authority or
// issued through a [Signer]; zero if there are none.
func (a *authority) lastEnd() (last time.Time) {
	if lent := a.lentUntil.Load(); lent > 0 {
		last = time.Unix(0, lent)
	}
	for end := range maps.Values(a.ends) {
		last = clock.Later(last, end)
	}
	return last
}

// ownOverlap is the shortest time to keep a root that a new certificate needs.
func (a *authority) ownOverlap() time.Duration {
	if a.RootOverlap != nil {
		return *a.RootOverlap
	}
	return time.Minute // a preview accepts any positive duration
}

// verify checks the reply to a request that l sent at asked. It checks against exactly the
// roots that will be served with the certificate, and serves them before it returns.
func (a *authority) verify(ctx context.Context, l *leaf, reply ca.Certificate, asked time.Time, check checkFunc) (*pki.Chain, error) {
	_, chain, err := a.verifyRoots(ctx, l, reply, asked, check)
	return chain, err
}

// verifyRoots is verify that also returns the roots in the reply.
func (a *authority) verifyRoots(ctx context.Context, l *leaf, reply ca.Certificate, asked time.Time, check checkFunc) (given *pki.Bundle, chain *pki.Chain, err error) {
	if given, err = a.given(ctx, reply.Roots); err != nil {
		return nil, nil, err
	}
	if chain, err = check(reply.Chain, a.preview(given, asked)); err != nil {
		a.refresh() // the authority may have new roots it has not published yet
		return nil, nil, err
	}
	a.do(func() {
		a.ends[l] = chain.Leaf.NotAfter
		a.roots.reply(given, asked, a.keptUntil)
	})
	return given, chain, nil
}

// checkFunc verifies a chain (PEM) against roots.
type checkFunc func(chain []byte, roots *pki.Bundle) (*pki.Chain, error)

// given returns the admitted roots of a reply. If the reply has none, the authority
// publishes its roots separately, and given waits for them.
func (a *authority) given(ctx context.Context, roots []byte) (*pki.Bundle, error) {
	if len(roots) > 0 {
		return a.admit(roots)
	}
	a.waitForRoots(ctx)
	return nil, nil
}

// preview returns the roots to serve if those of a reply are taken.
func (a *authority) preview(given *pki.Bundle, asked time.Time) (roots *pki.Bundle) {
	a.do(func() {
		try := a.roots.clone()
		try.reply(given, asked, func() time.Time {
			// The reply's own certificate will then be held, which keeps its roots.
			return clock.Later(a.keptUntil(), a.now().Add(a.ownOverlap()))
		})
		roots = try.served(a.now())
	})
	return roots
}

// waitForRoots waits for the first roots of an authority that publishes them separately.
func (a *authority) waitForRoots(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	select {
	case <-a.heard:
	case <-ctx.Done():
	}
}

// forget stops keeping roots for the certificate of l.
func (a *authority) forget(l *leaf) {
	a.do(func() { delete(a.ends, l) })
}
