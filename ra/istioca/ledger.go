package istioca

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/ra/istioca/internal/chains"
	"github.com/countersign-dev/countersign/ra/share"
)

// errNoRecord means that the record cannot be read or written now, or by this program.
var errNoRecord = errors.New("the record of renewals cannot be used")

// between is the longest wait before a change is tried again that another replica came before.
const between = 50 * time.Millisecond

// ledger changes the record that all replicas share, one change at a time.
type ledger struct {
	store share.Store
	turn  chan struct{}
	last  atomic.Pointer[RenewalsStatus]
}

// RenewalsStatus is what is known of the record of renewals.
type RenewalsStatus struct {
	// Chains are those in the record when it was last read.
	Chains int
	// Err says why the record could not be used the last time; nil if it could.
	Err error
}

// RenewalsStatus returns what the last call that needed the record has found.
func (s *Server) RenewalsStatus() RenewalsStatus { return *s.callers.Load().ledger.last.Load() }

func newLedger(store share.Store) *ledger {
	l := &ledger{store: store, turn: make(chan struct{}, 1)}
	l.last.Store(&RenewalsStatus{})
	return l
}

// change applies a change to the record as it is now, and returns its error once what it changed
// is written. A change that another replica came before is applied anew. Any other failure wraps
// errNoRecord, or [chains.ErrFull].
func (l *ledger) change(ctx context.Context, change func(*chains.Record) error) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoRecord, context.Cause(ctx))
	}
	for {
		said, err := l.try(ctx, change)
		switch {
		case err == nil, errors.Is(err, chains.ErrFull):
			return errors.Join(said, err)
		case !errors.Is(err, share.ErrConflict) || !waited(ctx, rand.N(between)):
			if !errors.Is(err, context.Canceled) { // a client that went away says nothing
				l.last.Store(&RenewalsStatus{l.last.Load().Chains, err})
			}
			return fmt.Errorf("%w: %w", errNoRecord, err)
		}
	}
}

// try returns what the change said, and why it is not written.
func (l *ledger) try(ctx context.Context, change func(*chains.Record) error) (said, err error) {
	text, version, err := l.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 && version != "" { // an empty record would deny all machines
		return nil, errors.New("the record of renewals is empty: restore it, or delete the object that had it")
	}
	record, err := chains.Parse(text)
	if err != nil {
		return nil, err
	}
	before, err := record.Encode()
	if err != nil {
		return nil, err
	}
	said = change(record)
	after, err := record.Encode()
	l.last.Store(&RenewalsStatus{len(record.Chains), err})
	if err != nil || bytes.Equal(before, after) {
		return said, err
	}
	return said, l.store.Save(ctx, after, version)
}

func waited(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
