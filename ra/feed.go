package ra

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/rootfeed"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// waitForRoots waits for the first roots of an authority that publishes them apart from
// replies.
func (a *authority) waitForRoots(ctx context.Context) error {
	select {
	case <-a.roots.heard: // as always but after a start
		return nil
	default:
	}
	timer := time.NewTimer(a.conf.Timeout)
	defer timer.Stop()
	select {
	case <-a.roots.heard:
		return nil
	case <-timer.C:
		return ca.Errorf(ca.Unavailable, "authority %q has not published roots yet", a.conf.Name)
	case <-ctx.Done():
		return ca.Errorf(ca.Unavailable, "%w", ctx.Err())
	}
}

// listen learns roots that are published apart from replies.
func (a *authority) listen(ctx context.Context) {
	var waits rotation.Waits
	source := rootfeed.Feed{
		Client: a.conf.Client, Timeout: a.conf.Timeout, Interval: a.conf.Roots.Interval, Turn: a.roots.turn,
		Take: func(_ context.Context, roots []byte) error { return a.tell(roots, &waits) },
		Refused: func(err error) {
			a.engine.cfg.Log.Warn("an authority's roots are refused", "authority", a.conf.Name, "error", text.Clean(err.Error()))
		},
	}
	for ctx.Err() == nil {
		source.Forget() // what is missing today may be there after an upgrade
		wait, tells, err := source.Listen(ctx)
		if !tells {
			a.mutes(true)
			a.first()
		}
		if err != nil && ctx.Err() == nil {
			wait = waits.After(err, time.Now(), aDay, 0)
			a.engine.cfg.Log.Warn("cannot learn an authority's roots", "authority", a.conf.Name, "error", text.Clean(err.Error()), "next_try", wait)
		}
		rotation.Sleep(ctx, wait, a.engine.cfg.Now, nil)
	}
}

func (a *authority) tell(given []byte, waits *rotation.Waits) error {
	roots, err := a.admit(given)
	if err != nil {
		return err
	}
	if err := a.changeRoots(func(now time.Time) error { return a.roots.phases.Told(roots, now) }); err != nil {
		return err
	}
	waits.Reset()
	a.mutes(false)
	a.first()
	return nil
}

// mutes records whether the authority publishes roots in replies alone.
func (a *authority) mutes(mute bool) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	a.roots.mute = mute
}

// first lets calls begin.
func (a *authority) first() { a.roots.once.Do(func() { close(a.roots.heard) }) }
