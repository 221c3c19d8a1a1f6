package secret

import (
	"context"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// restoreWait is how long New waits for the records of key pairs. It serves while it
	// reads the rest.
	restoreWait = 250 * time.Millisecond
	// restoreEach adds to storageTimeout, for each record, in the limit for all of them.
	restoreEach = 10 * time.Millisecond
)

// restorer reads the records of key pairs one after the other, those that someone watches
// first. A leaf makes no request before its record was read.
type restorer struct {
	keeper *keeper

	mu      sync.Mutex
	watched []*leaf
	others  []*leaf
	pending map[*leaf]bool // whether the leaf is in watched
}

func newRestorer(k *keeper, leaves []*leaf) *restorer {
	r := &restorer{keeper: k, others: leaves, pending: make(map[*leaf]bool)}
	for _, l := range leaves {
		l.restorer, l.record = r, make(chan func())
		r.pending[l] = false
	}
	return r
}

// prefer has the record of a leaf read soon. A nil restorer has none to read.
func (r *restorer) prefer(l *leaf) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if preferred, pending := r.pending[l]; pending && !preferred {
		r.pending[l] = true
		r.watched = append(r.watched, l)
	}
}

// next returns the leaf whose record is to be read next, or nil.
func (r *restorer) next() *leaf {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		from := &r.watched
		if len(*from) == 0 {
			from = &r.others
		}
		if len(*from) == 0 {
			return nil
		}
		l := (*from)[0]
		*from = (*from)[1:]
		if _, pending := r.pending[l]; pending {
			delete(r.pending, l)
			return l
		}
	}
}

// run reads all records. It gives up on a storage that does not answer: the leaves that
// are left then request certificates.
func (r *restorer) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout+time.Duration(len(r.others))*restoreEach)
	defer cancel()
	for l := r.next(); l != nil; l = r.next() {
		var kept Record
		if ctx.Err() == nil {
			var err error
			if kept, err = r.keeper.load(ctx, RecordOf(l.name)); timedOut(err) {
				cancel()
			}
		}
		l.hand(l.record, l.examine(kept))
	}
}

func timedOut(err error) bool { return err != nil && ca.ReasonFor(err) == ca.Deadline }

// restorePairs restores key pairs, and returns when all are restored or restoreWait is
// over. Until all are, the roots of the last run stay.
func (m *Manager) restorePairs(r *restorer, authorities map[string]*authority) {
	if r == nil {
		return
	}
	done := make(chan struct{})
	m.wg.Go(func() {
		defer close(done)
		r.run(m.ctx)
		for _, a := range authorities {
			a.do(func() { a.restoring = time.Time{} })
		}
	})
	timer := time.NewTimer(restoreWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
