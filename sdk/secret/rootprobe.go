package secret

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// rootProbe orders certificates for the roots in their replies, from an authority that returns
// its roots in no other way and signs no secret: a workload whose key and certificate are
// mounted may still need that authority's roots. No client gets these certificates, and their
// keys are dropped at once. A listener owns it.
type rootProbe struct {
	spec    Spec // what to order; no identity: nothing
	order   *order
	refused refusedToken
}

// rootProbe returns the certificate to order for the authority's roots, if any: that of a trust
// bundle which has an identity for this. Pinned roots are known already.
func (a *authority) rootProbe() (s rootProbe) {
	p := a.plan.Load()
	if len(p.leaves) > 0 || p.PinnedRoots != nil {
		return s
	}
	for _, b := range p.bundles {
		if spec := b.is().spec; !spec.Identity.IsZero() {
			s.spec = spec
		}
	}
	return s
}

// probe orders a certificate if that is due, and returns the wait before the next look.
func (l *listener) probe(ctx context.Context) (time.Duration, error) {
	s := &l.root
	if wait := l.feed.probed.Load(); wait != nil && !wait.Over(rotation.Now(l.now())) {
		return wait.Left(rotation.Now(l.now())), nil
	}
	a := &attempt{
		plan: plan{spec: s.spec}, leaf: l.standIn, by: l.authority, turn: l.feed.turn, conf: l.conf,
		order: s.order, refused: s.refused,
	}
	err := a.run(ctx)
	if ctx.Err() != nil {
		return 0, ctx.Err() // a reload came first, and these roots were not taken
	}
	s.order, s.refused = a.order, a.refused
	if err == nil || endsOrder(err) {
		s.order = nil
	}
	if err != nil {
		return 0, err
	}
	wait := a.item.RenewAt.Sub(l.now())
	pause := rotation.NewPause(wait, rotation.Now(l.now()))
	l.feed.probed.Store(&pause)
	l.waits.Reset()
	l.feed.failure.Store(nil)
	return wait, nil
}
