package ra

import (
	"context"
	"encoding/json"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ra/internal/rootphase"
)

// authorityRecord is what an authority's Store keeps.
type authorityRecord struct {
	Backdating time.Duration   `json:"backdating"`
	Roots      json.RawMessage `json:"roots"`
}

// firstRecord is how long one who is led waits for a record where there is none. At the very first
// start, the leader writes it as soon as it has heard roots; if it was deleted, it does so when it
// looks again.
const firstRecord = 15 * time.Second

// restore takes over the record of the last run. Without one, or with one that is of no use,
// the first roots are trusted.
func (a *authority) restore() {
	var kept authorityRecord
	for end := time.Now().Add(firstRecord); ; {
		there, ok := a.read(&kept)
		if !ok {
			return
		}
		if there || !a.conf.Roots.Led || !time.Now().Before(end) {
			break
		}
		select {
		case <-a.engine.ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	a.phases, a.back = rootphase.New(a.conf.Roots.phases()), max(0, kept.Backdating)
	a.met = a.back > 0
	if len(kept.Roots) == 0 {
		return
	}
	phases, err := rootphase.Restore(a.conf.Roots.phases(), kept.Roots, e.cfg.Now())
	if err != nil {
		e.cfg.Log.Error("cannot use the recorded roots of an authority; the first roots that it returns are trusted",
			"authority", a.conf.Name, "error", text.Clean(err.Error()))
		return
	}
	a.phases = phases
}

// read loads the record, and tries again for as long as the Store cannot tell whether there is
// one: until then nothing is signed. It returns false if the engine is closed first.
func (a *authority) read(kept *authorityRecord) (there, ok bool) {
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		there, err := a.load(kept)
		switch {
		case err == nil:
			return there, true
		case ca.ReasonFor(err) == ca.Invalid:
			a.engine.cfg.Log.Error("the record of an authority's roots is malformed; the first roots that it returns are trusted",
				"authority", a.conf.Name, "error", text.Clean(err.Error()))
			return true, true
		}
		a.engine.cfg.Log.Error("cannot read the record of an authority's roots; nothing is signed until it can be read",
			"authority", a.conf.Name, "error", text.Clean(err.Error()), "next_try", wait)
		select {
		case <-a.engine.ctx.Done():
			return false, false
		case <-time.After(wait):
		}
	}
}

func (a *authority) load(into *authorityRecord) (there bool, err error) {
	store := a.engine.cfg.Store
	if store == nil {
		return false, nil
	}
	record, err := call.Do(a.engine.ctx, a.conf.Timeout, a.records, func(ctx context.Context) ([]byte, error) {
		return store.Load(ctx, a.conf.Name)
	})
	if err != nil || len(record) == 0 {
		return false, err
	}
	if err := json.Unmarshal(record, into); err != nil {
		*into = authorityRecord{}
		return true, ca.Errorf(ca.Invalid, "%w", err)
	}
	return true, nil
}

// keep keeps the record, and takes what others have written into it.
func (a *authority) keep(ending bool) {
	if shared := a.engine.updater(); shared != nil {
		a.sync(shared, ending)
		return
	}
	a.save()
}

// save keeps the record if it has changed. If that fails, the next look tries again.
func (a *authority) save() {
	e := a.engine
	e.mu.Lock()
	dirty := a.dirty && e.cfg.Store != nil
	a.dirty = false
	kept := authorityRecord{a.back, nil}
	if dirty {
		kept.Roots = a.phases.Record()
	}
	e.mu.Unlock()
	if !dirty {
		return
	}
	record, err := json.Marshal(kept)
	if err == nil {
		// At the end, too, when the engine's context is over.
		_, err = call.Do(context.WithoutCancel(e.ctx), a.conf.Timeout, a.records, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, e.cfg.Store.Save(ctx, a.conf.Name, record)
		})
	}
	if err != nil {
		e.cfg.Log.Warn("cannot keep what is known of an authority's roots", "authority", a.conf.Name, "error", text.Clean(err.Error()))
		e.mu.Lock()
		a.dirty = true
		e.mu.Unlock()
	}
}
