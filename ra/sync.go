package ra

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/peers"
	"github.com/countersign-dev/countersign/internal/text"
)

// syncs is the longest time between looks at a record that others write, too.
const syncs = 10 * time.Second

func (a *authority) syncEvery() time.Duration { return min(syncs, a.conf.Roots.Interval) }

// updater is the Store if several engines share it, or nil.
func (e *Engine) updater() Updater {
	shared, _ := e.cfg.Store.(Updater)
	return shared
}

// sync reads the record if it is time, or if there is something to add. If that fails, the next
// look tries again. At the end, only what is new is written.
func (a *authority) sync(with Updater, ending bool) {
	e, ctx := a.engine, a.engine.ctx
	e.mu.Lock()
	dirty, now := a.record.dirty, time.Now()
	due := dirty || !ending && now.Sub(a.record.synced) >= a.syncEvery()
	if due {
		a.record.dirty, a.record.synced = false, now
	}
	e.mu.Unlock()
	if !due {
		return
	}
	if ending {
		ctx = context.WithoutCancel(ctx)
	}
	_, err := call.Do(ctx, a.conf.Timeout, a.record.turn, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, with.Update(ctx, a.conf.Name, a.exchange)
	})
	if err == nil {
		return
	}
	if e.ctx.Err() == nil || ending {
		e.cfg.Log.Warn("cannot share what is known of an authority's roots", "authority", a.conf.Name, "error", text.Clean(err.Error()))
	}
	e.mu.Lock()
	a.record.dirty = a.record.dirty || dirty
	e.mu.Unlock()
}

// exchange merges what others wrote and returns the new record. The leader replaces an unusable
// record as soon as a root is known; no replica replaces one of a newer version.
func (a *authority) exchange(before []byte) []byte {
	kept, err := parseRecord(before)
	led := a.conf.Roots.Led
	var roots []byte
	if err == nil || !led && !errors.Is(err, peers.ErrNewer) {
		var useless error
		roots, useless = a.takePhases(kept.Roots)
		err = cmp.Or(err, useless)
	}
	a.judged(err)
	behind, lacking := a.shareBehind(kept.Behind, err == nil && len(before) > 0)
	switch {
	case errors.Is(err, peers.ErrNewer), led && err != nil, led && string(roots) == string(kept.Roots):
		return before
	case (len(before) == 0 || err != nil) && a.knowsNone():
		return before
	}
	kept.Version, kept.Roots = recordVersion, roots
	if !led {
		kept.Backdating, kept.Behind, kept.Lacking = a.backdating(), behind, lacking
	}
	record, err := json.Marshal(kept)
	if err != nil {
		return before // never: both are plain
	}
	return record
}

func (a *authority) judged(err error) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	a.judge(err)
}

// takePhases takes the phases of the common record, and has learn do what follows.
func (a *authority) takePhases(recorded []byte) (next []byte, err error) {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	next, err = a.roots.phases.Sync(recorded, a.now())
	a.release()
	if !a.roots.phases.Bundle().Equal(a.roots.shown) {
		poke(a.record.changed)
	}
	return next, err
}

// knowsNone reports whether no root is known: an empty record would say that none ever was.
func (a *authority) knowsNone() bool {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	return a.roots.phases.Bundle().Len() == 0
}

func (a *authority) backdating() time.Duration {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	return a.back.by
}
