package istioca

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/ra/istioca/internal/chains"
	"github.com/countersign-dev/countersign/ra/share"
)

// errNoRecord means that the record cannot be read or written now, or by this program.
var errNoRecord = errors.New("the record of renewals cannot be used")

const (
	// between is the longest wait before a change is tried again that another replica came before.
	between = 50 * time.Millisecond
	// lookEvery bounds how often presented certificates have an object read: they cost nothing yet
	// by then.
	lookEvery = time.Second
	// errorCounts is how long an error of an object is reported that no machine has needed since: one
	// that fails tries again within ten minutes.
	errorCounts = 15 * time.Minute
)

// ledger is the record that all replicas share: an identity's chains are in one of its objects.
type ledger []*object

// RenewalsStatus is what is known of the record of renewals.
type RenewalsStatus struct {
	// Chains are those in the record when it was last read.
	Chains int
	// Err is why the record could not be used the last time; nil if it could.
	Err error
}

// RenewalsStatus returns what the last calls that needed the record have found.
func (s *Server) RenewalsStatus() (all RenewalsStatus) {
	for _, o := range s.callers.Load().ledger {
		o.mu.Lock()
		all.Chains += len(o.seen.Chains)
		if o.err != nil && time.Since(o.last) < errorCounts {
			all.Err = o.err
		}
		o.mu.Unlock()
	}
	return all
}

func newLedger(stores []share.Store, timeout time.Duration, log *slog.Logger) (l ledger) {
	for n, store := range stores {
		l = append(l, &object{number: n, store: store, timeout: timeout, log: log, turn: call.NewTurn(), seen: &chains.Record{}})
	}
	return l
}

// of returns the object that has an identity's chains.
func (l ledger) of(identity string) *object {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(identity))
	return l[sum.Sum32()%uint32(len(l))] // #nosec G115 -- a few
}

// object is one object of the record. Changes that come while it is read or written wait, and are
// written together: machines that enroll together need a few writes, not one each.
type object struct {
	number  int
	store   share.Store
	timeout time.Duration
	log     *slog.Logger
	turn    call.Turn // to read and write

	mu   sync.Mutex
	next *batch         // that waits for the turn; nil: none does
	seen *chains.Record // as last read or written; never changed
	at   time.Time      // when; zero: it has to be read again
	err  error          // of the last try
	last time.Time      // when that was
}

// batch is changes that are written together.
type batch struct {
	changes []func(*chains.Record) error // the object's lock guards it until they are taken
	said    []error                      // by each change, once done is closed
	err     error                        // why they were not written
	done    chan struct{}
}

// written is a record as it is written, and what each change returned.
type written struct {
	record *chains.Record
	said   []error
}

// change applies a change to the record as it is now, and returns its error once what it changed is
// written. A change that another replica came before is applied anew. Any other failure wraps
// errNoRecord, or [chains.ErrFull]. The change may be applied after ctx ended.
func (o *object) change(ctx context.Context, change func(*chains.Record) error) error {
	b, at := o.join(change)
	if at == 0 {
		o.commit(ctx, b)
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoRecord, context.Cause(ctx))
	}
	return errors.Join(b.said[at], b.err)
}

// join adds a change to those that wait. The first of them is to write all.
func (o *object) join(change func(*chains.Record) error) (b *batch, at int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next == nil {
		o.next = &batch{done: make(chan struct{})}
	}
	o.next.changes = append(o.next.changes, change)
	return o.next, len(o.next.changes) - 1
}

// take returns the changes of a batch, to which none is added any more.
func (o *object) take(b *batch) []func(*chains.Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next == b {
		o.next = nil
	}
	return b.changes
}

// commit writes a batch. It does not end with the first caller, as others wait for it.
func (o *object) commit(ctx context.Context, b *batch) {
	out, err := call.Do(context.WithoutCancel(ctx), o.timeout, o.turn, func(ctx context.Context) (written, error) {
		return o.apply(ctx, o.take(b))
	})
	b.err = o.note(out.record, err)
	if b.said = out.said; err != nil {
		b.said = make([]error, len(o.take(b)))
	}
	close(b.done)
}

// apply reads, changes and writes the object until no other replica comes between.
func (o *object) apply(ctx context.Context, changes []func(*chains.Record) error) (written, error) {
	for {
		out, err := o.try(ctx, changes)
		if !errors.Is(err, share.ErrConflict) || !waited(ctx, rand.N(between)) {
			return out, err
		}
	}
}

func (o *object) try(ctx context.Context, changes []func(*chains.Record) error) (out written, err error) {
	record, version, err := o.read(ctx)
	if err != nil {
		return out, err
	}
	before, err := record.Encode()
	if err != nil {
		return out, err
	}
	out.record = record
	for _, change := range changes {
		out.said = append(out.said, change(record))
	}
	after, err := record.Encode()
	if err != nil || bytes.Equal(before, after) {
		return out, err
	}
	return out, o.store.Save(ctx, after, version)
}

func (o *object) read(ctx context.Context) (record *chains.Record, version string, err error) {
	text, version, err := o.store.Load(ctx)
	if err != nil {
		return nil, "", err
	}
	if len(text) == 0 && version != "" { // an empty record would deny all machines
		return nil, "", fmt.Errorf("object %d of the record of renewals is empty: restore it, or delete it", o.number)
	}
	if record, err = chains.Parse(text); err != nil {
		return nil, "", fmt.Errorf("object %d of the record of renewals: %w", o.number, err)
	}
	if record.Damaged > 0 {
		o.log.Error("the record of renewals has entries that cannot be read; their machines need a token", "object", o.number, "entries", record.Damaged)
	}
	return record, version, nil
}

// note remembers how a try ended, and returns its error as callers get it.
func (o *object) note(record *chains.Record, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.last = err, time.Now()
	if err == nil {
		o.seen, o.at = record, o.last
		return nil
	}
	o.at = time.Time{}
	if errors.Is(err, chains.ErrFull) {
		return err
	}
	return fmt.Errorf("%w: %w", errNoRecord, err)
}

// look returns the record, which must not be changed, as it is, or was within the last second if it is
// enough then.
func (o *object) look(ctx context.Context, enough func(*chains.Record) bool) (*chains.Record, error) {
	for {
		o.mu.Lock()
		seen, left := o.seen, lookEvery-time.Since(o.at)
		o.mu.Unlock()
		switch {
		case left <= 0:
			if err := o.change(ctx, func(*chains.Record) error { return nil }); err != nil {
				return nil, err
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.seen, nil
		case enough(seen):
			return seen, nil
		case !waited(ctx, left):
			return nil, fmt.Errorf("%w: %w", errNoRecord, context.Cause(ctx))
		}
	}
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
