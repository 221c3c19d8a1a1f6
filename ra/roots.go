package ra

import (
	"bytes"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra/internal/rootphase"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// rootState is what is known of an authority's roots, and of who has them.
type rootState struct {
	phases  *rootphase.Machine   // nil until the record is read
	clock   rootphase.Clock      // by which the phases go
	behind  []string             // clusters that no new root waits for, sorted
	lacking map[string]time.Time // since when places lack roots; not changed, but replaced
	shown   *pki.Bundle          // the bundle that RootsChanged got last
	given   *pki.Bundle          // the roots of the last reply that had others than the one before
	mute    bool                 // the authority has no other source of roots than replies
	parsed  atomic.Pointer[parsedRoots]
	heard   chan struct{} // closed once roots are known, or come in replies alone
	once    sync.Once     // closes the channel
	turn    call.Turn     // for RootSource and RootWatcher
}

// learn restores what is known of the roots, listens for new ones, and moves their phases.
func (a *authority) learn() {
	if a.restore(); a.engine.ctx.Err() != nil {
		return
	}
	listening := make(chan struct{})
	go func() { defer close(listening); a.listen(a.engine.ctx) }()
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		a.publish()
		a.keep(false)
		timer.Reset(a.nextPhase())
		select {
		case <-a.engine.ctx.Done():
			<-listening
			a.keep(true)
			return
		case <-a.record.changed:
		case <-timer.C:
			_ = a.changeRoots(func(time.Time) error { return nil }) // the time alone has changed
		}
	}
}

// look is the longest time between looks at the clock: a jump of it fires no timer.
const look = 30 * time.Second

// now returns the time that the phases of the roots go by. The lock is held.
func (a *authority) now() time.Time { return a.roots.clock.At(rotation.Now(a.engine.cfg.Now())) }

func (a *authority) nextPhase() time.Duration {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	now, longest := a.now(), look
	if e.updater() != nil {
		longest = a.syncEvery()
	}
	next := a.roots.phases.Step(now)
	a.release()
	if next.After(now) {
		return min(longest, next.Sub(now))
	}
	return longest
}

// publish reports a changed bundle.
func (a *authority) publish() {
	a.engine.mu.Lock()
	bundle := a.roots.phases.Bundle()
	changed := !bundle.Equal(a.roots.shown)
	a.roots.shown = bundle
	a.engine.mu.Unlock()
	if changed {
		a.engine.cfg.Log.Info("roots to publish changed", "authority", a.conf.Name, "fingerprints", bundle.Fingerprints())
		a.engine.cfg.RootsChanged(a.conf.Name, bundle)
	}
}

// changeRoots changes the phases, and has learn do what follows.
func (a *authority) changeRoots(change func(now time.Time) error) error {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.roots.phases == nil {
		return nil // not restored yet
	}
	now := a.now()
	err := change(now)
	a.roots.phases.Step(now)
	a.release()
	a.record.change()
	return err
}

// admit returns the roots that may be taken: those that have not ended and, if there are
// pins, are pinned.
func (a *authority) admit(pemBytes []byte) (*pki.Bundle, error) {
	all, err := a.parse(pemBytes)
	if err != nil {
		return nil, &pki.CheckError{Check: "roots", Detail: text.Clean(err.Error())}
	}
	now, pins := a.engine.cfg.Now(), a.conf.PinnedRoots
	valid := all.Filter(func(cert *x509.Certificate) bool { return cert.NotAfter.After(now) })
	roots := valid.Filter(func(cert *x509.Certificate) bool { return pins == nil || pins.Contains(cert) })
	switch {
	case valid.Len() == 0:
		return nil, &pki.CheckError{Check: "roots", Detail: "all of them have expired"}
	case roots.Len() == 0:
		return nil, pki.NotPinned(valid)
	}
	return roots, nil
}

// parse remembers what it parsed last, as each reply has the same roots.
func (a *authority) parse(pemBytes []byte) (*pki.Bundle, error) {
	if last := a.roots.parsed.Load(); last != nil && bytes.Equal(last.pem, pemBytes) {
		return last.bundle, nil
	}
	bundle, unusable, err := pki.UsableBundle(pemBytes)
	if err == nil {
		a.roots.parsed.Store(&parsedRoots{bytes.Clone(pemBytes), bundle, a.leaveOut(unusable)})
	}
	return bundle, err
}

type parsedRoots struct {
	pem     []byte
	bundle  *pki.Bundle
	leftOut string // the first one that is left out, and why
}

// leaveOut logs the roots that are of no use in one line, unless the last set had the same:
// replies are frequent, and may have other roots than the published ones.
func (a *authority) leaveOut(unusable []error) (first string) {
	if len(unusable) == 0 {
		return ""
	}
	first = text.Clean(unusable[0].Error())
	if last := a.roots.parsed.Load(); last == nil || last.leftOut != first {
		a.engine.cfg.Log.Warn("roots of an authority are left out", "authority", a.conf.Name, "count", len(unusable), "first", first)
	}
	return first
}

// takeRoots takes the roots of a reply, and returns those to verify it with: the ones that
// are trusted, and all.
func (a *authority) takeRoots(given []byte, sent time.Time) (trusted, all *pki.Bundle, err error) {
	var roots *pki.Bundle
	if len(given) > 0 {
		if roots, err = a.admit(given); err != nil {
			return nil, nil, err
		}
	}
	if a.isNews(roots) {
		err = a.changeRoots(func(now time.Time) error { return a.replied(roots, sent, now) })
	}
	if err != nil {
		return nil, nil, &pki.CheckError{Check: "roots", Detail: err.Error()}
	}
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	return a.roots.phases.Trusted(), a.roots.phases.Bundle(), nil
}

// isNews reports whether the roots of a reply are others than those before.
func (a *authority) isNews(roots *pki.Bundle) bool {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	return roots.Len() > 0 && !roots.Equal(a.roots.given)
}

// replied takes the roots of a reply. They are the whole set of an authority that publishes them
// nowhere else. The lock is held.
func (a *authority) replied(roots *pki.Bundle, sent, now time.Time) error {
	a.roots.given = roots
	if a.roots.mute {
		return a.roots.phases.RepliedAll(roots, sent, now)
	}
	return a.roots.phases.Replied(roots, sent, now)
}

// holdBack keeps a certificate below a root that is not everywhere, and asks for no more
// until it may be.
func (a *authority) holdBack(root *x509.Certificate) error {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	wait := a.roots.phases.Early(root, a.now())
	a.record.change()
	if wait <= 0 {
		return nil
	}
	a.hold.begin(root, wait)
	err := ca.Errorf(ca.Unavailable, "%w", a.hold.why)
	err.RetryAfter = min(wait, heldAgain)
	return err
}

// release ends a hold whose root is trusted now. The lock is held.
func (a *authority) release() {
	if a.hold.endedBy(a.roots.phases.Trusted()) {
		a.poke()
	}
}

// delivered records a certificate that is given out with roots, to a holder that follows all
// roots or learns these alone.
func (a *authority) delivered(chain *pki.Chain, roots *pki.Bundle, follows bool) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	now := a.now()
	changed := follows && a.roots.phases.Follows(chain.Root, chain.Ends, now) ||
		!follows && a.roots.phases.Issued(chain.Root, chain.Ends, roots, now)
	if changed {
		a.record.change()
	}
}

// lifetime returns the lifetime to ask for.
func (t *try) lifetime() time.Duration {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	return t.back.lifetime(t.order)
}

// backdates learns by how much the authority backdates.
func (a *authority) backdates(by time.Duration) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	if a.back.learn(by) {
		a.record.change()
	}
}
