package ra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/peers"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra/internal/rootphase"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// recordVersion is the one that this program writes. Records without one are of the time before.
const recordVersion = 1

// authorityRecord is what an authority's Store keeps.
type authorityRecord struct {
	Version    int             `json:"version"`
	Backdating time.Duration   `json:"backdating"`
	Roots      json.RawMessage `json:"roots"`
	Behind     []string        `json:"behind,omitempty"` // clusters that no new root waits for

	Lacking map[string]time.Time `json:"lacking,omitempty"` // since when places lack roots
}

// parseRecord reads a record; nothing is an empty one. The error wraps [peers.ErrNewer] for a record
// that a newer program can read.
func parseRecord(text []byte) (kept authorityRecord, err error) {
	if len(text) == 0 {
		return kept, nil
	}
	if err := peers.CheckVersion(text, recordVersion); err != nil {
		return kept, err
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		return authorityRecord{}, fmt.Errorf("the record is malformed: %w", err)
	}
	return kept, nil
}

// RecordedRoots returns the roots that the record of an authority has, to verify with; nil if it has
// none. The record is as an [Engine] left it in its Store.
func RecordedRoots(record []byte) (*pki.Bundle, error) {
	kept, err := parseRecord(record)
	if err != nil || len(kept.Roots) == 0 {
		return nil, err
	}
	phases, err := rootphase.Restore(rootphase.Config{}, kept.Roots, time.Now())
	if err != nil {
		return nil, err
	}
	return phases.Bundle(), nil
}

// recordState is what has to be done with the record.
type recordState struct {
	dirty   bool          // it has to be written
	changed chan struct{} // wakes learn
	useless error         // why it cannot be used, if it cannot
	synced  time.Time     // monotonic: when the common one was read last
	turn    call.Turn     // for the Store
}

// change has learn write the record.
func (r *recordState) change() {
	r.dirty = true
	poke(r.changed)
}

// firstRecord is how long a follower waits while there is no usable record. At the very first
// start, the leader writes it once the CA has published roots; a record that was deleted or is
// unusable, at its next look.
const firstRecord = 15 * time.Second

// restore takes over the record of the last run. Without one, the first roots are trusted; if it is of
// no use, they wait.
func (a *authority) restore() {
	for end := time.Now().Add(firstRecord); ; {
		kept, there, err := a.read()
		if a.engine.ctx.Err() != nil {
			return
		}
		if there && err == nil || !a.conf.Roots.Led || !time.Now().Before(end) {
			a.begin(kept, err)
			return
		}
		select {
		case <-a.engine.ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// begin begins with a record, or without what is of no use of it.
func (a *authority) begin(kept authorityRecord, err error) {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	conf := a.conf.Roots.phases()
	a.roots.phases = rootphase.New(conf)
	a.back.restore(kept.Backdating)
	if a.roots.behind == nil {
		a.roots.behind = kept.Behind
	}
	if !conf.Led {
		a.roots.lacking = kept.Lacking
	}
	if len(kept.Roots) > 0 && err == nil {
		var phases *rootphase.Machine
		if phases, err = rootphase.Restore(conf, kept.Roots, a.now()); err == nil {
			a.roots.phases = phases
		}
	}
	if a.judge(err); err != nil {
		a.roots.phases = rootphase.Rebuild(conf)
		e.cfg.Log.Warn("the roots of an authority are published, and wait until it signs below them or all have them", "authority", a.conf.Name)
	}
}

// judge remembers why the record is of no use, and logs it if that has changed. The lock is held.
func (a *authority) judge(err error) {
	before := a.record.useless
	if a.record.useless = err; err == nil || before != nil && before.Error() == err.Error() {
		return
	}
	does := "; the leader replaces it"
	if errors.Is(err, peers.ErrNewer) {
		does = "; it is left as it is"
	}
	a.engine.cfg.Log.Error("cannot use the record of an authority's roots"+does, "authority", a.conf.Name, "error", text.Clean(err.Error()))
}

// read loads the record, and tries again for as long as the Store cannot determine whether there is
// one: until then nothing is signed. An error means that the record is of no use, or that the engine
// was closed first.
func (a *authority) read() (kept authorityRecord, there bool, err error) {
	var waits rotation.Waits
	for {
		record, err := a.load()
		if err == nil {
			kept, err := parseRecord(record)
			return kept, len(record) > 0, err
		}
		if ca.ReasonFor(err) == ca.Invalid {
			return kept, true, err
		}
		wait := waits.Next(rotation.Row{First: time.Second, Most: 30 * time.Second})
		a.engine.cfg.Log.Error("cannot read the record of an authority's roots; nothing is signed until it can be read",
			"authority", a.conf.Name, "error", text.Clean(err.Error()), "next_try", wait)
		if rotation.Sleep(a.engine.ctx, wait, a.engine.cfg.Now, nil); a.engine.ctx.Err() != nil {
			return kept, false, a.engine.ctx.Err()
		}
	}
}

func (a *authority) load() ([]byte, error) {
	store := a.engine.cfg.Store
	if store == nil {
		return nil, nil
	}
	return call.Do(a.engine.ctx, a.conf.Timeout, a.record.turn, func(ctx context.Context) ([]byte, error) {
		return store.Load(ctx, a.conf.Name)
	})
}

// keep keeps the record, and takes what others have written into it.
func (a *authority) keep(ending bool) {
	if shared := a.engine.updater(); shared != nil {
		a.sync(shared, ending)
		return
	}
	a.save()
}

// save keeps the record if it has changed. If that fails, the next look tries again. It writes nothing
// over one of a newer version.
func (a *authority) save() {
	e := a.engine
	e.mu.Lock()
	dirty := a.record.dirty && e.cfg.Store != nil && !errors.Is(a.record.useless, peers.ErrNewer)
	a.record.dirty = false
	kept := authorityRecord{Version: recordVersion, Backdating: a.back.by, Behind: a.roots.behind, Lacking: a.roots.lacking}
	if dirty {
		kept.Roots = a.roots.phases.Record()
	}
	e.mu.Unlock()
	if !dirty {
		return
	}
	record, err := json.Marshal(kept)
	if err == nil {
		// At the end, too, when the engine's context is over.
		_, err = call.Do(context.WithoutCancel(e.ctx), a.conf.Timeout, a.record.turn, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, e.cfg.Store.Save(ctx, a.conf.Name, record)
		})
	}
	if err != nil {
		e.cfg.Log.Warn("cannot keep what is known of an authority's roots", "authority", a.conf.Name, "error", text.Clean(err.Error()))
		e.mu.Lock()
		a.record.dirty = true
		e.mu.Unlock()
	}
}
