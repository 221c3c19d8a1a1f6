package secret

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// scout orders certificates for the roots in their replies, from an authority that tells
// its roots in no other way and signs no secret: a workload whose key and certificate are
// mounted may still need that authority's roots. Nobody gets these certificates, and their
// keys are dropped at once. A feed owns it.
type scout struct {
	spec    Spec // what to order; no identity: nothing
	order   *order
	refused refusedToken
}

// scout returns the certificate to order for the authority's roots, if any: that of a trust
// bundle which has an identity for this. Pinned roots are known already.
func (a *authority) scout() (s scout) {
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

// scouts orders a certificate if that is due, and returns the wait before the next look.
func (f *feed) scouts(ctx context.Context) (time.Duration, error) {
	s := &f.scout
	if wait := f.scouted.Load(); wait != nil && !wait.Over(rotation.Now(f.now())) {
		return wait.Left(rotation.Now(f.now())), nil
	}
	a := &attempt{
		plan: plan{spec: s.spec}, leaf: f.lent, by: f.authority, turn: f.asks, conf: f.conf,
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
	wait := a.item.RenewAt.Sub(f.now())
	pause := rotation.NewPause(wait, rotation.Now(f.now()))
	f.scouted.Store(&pause)
	f.waits.Reset()
	f.failure.Store(nil)
	return wait, nil
}
