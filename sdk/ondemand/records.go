package ondemand

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// storageTimeout limits each call of a Storage, and indexTimeout that at the start.
	storageTimeout = 5 * time.Second
	indexTimeout   = 30 * time.Second
	// readers is how many records are read and verified at once.
	readers = 4
	// readTries is how often a record is read that cannot be, before its name counts as new.
	readTries = 3
	// readAgain is the pause between them.
	readAgain = time.Second
	// readWait is how long a subscription waits for a record: 100,000 take 20 s.
	readWait = time.Minute
)

// records are the names in Storage that are not entries.
type records struct {
	indexed    bool // at the start; what is not in the index is not in Storage, or is new there
	orphans    map[string]orphan
	swept      time.Time // by the monotonic clock, or when the Set was made
	discarding map[string]*deletion
	discards   []string // deletions that may not have begun
	discarders int
	deleting   turns // of the discarders
}

// loads are the entries whose records are to be read. The scheduler's lock guards them.
type loads struct {
	waiting []*entry
	readers int
	turns   turns // of the readers
}

// turns are those of goroutines that end once they have no work. A call that hangs keeps its turn, so
// that the goroutines which come later do not add to the calls that hang.
type turns chan call.Turn

func newTurns(n int) turns {
	all := make(turns, n)
	for range n {
		all <- call.NewTurn()
	}
	return all
}

func newRecords() records {
	return records{orphans: map[string]orphan{}, discarding: map[string]*deletion{}, deleting: newTurns(discarders), swept: time.Now()}
}

// readIndex takes the names in Storage as orphans, which adopt makes entries.
func (s *Set) readIndex() error {
	if s.cfg.Storage == nil {
		return nil
	}
	timeout := indexTimeout
	if s.shared != nil { // it is read later
		timeout = storageTimeout
	}
	index, err := call.Do(s.sched.Context, timeout, call.NewTurn(), s.cfg.Storage.Index)
	if err != nil && s.shared != nil && later(err) {
		s.cfg.Log.Warn("cannot read which certificates on demand the machines share: new names wait", "error", err)
		return nil // followChanges reads it later
	}
	if err != nil {
		return fmt.Errorf("failed to read which certificates on demand are stored: %w", err)
	}
	s.indexed = true
	for _, e := range index {
		s.orphans[e.Name] = orphan{Entry: e}
	}
	return nil
}

// keep makes the entry of a stored name. Whether it was in use is not known.
func (s *Set) keep(name string, r *rule, kept secret.Entry, now time.Time) {
	e := &entry{name: name, rule: r, decided: true, stored: true, known: termOf(kept), asked: now, used: s.uses.last(name, now)}
	if !kept.Ends.IsZero() {
		if s.shared != nil {
			kept.Renew = spread(kept.Renew, kept.Ends)
		}
		e.Rotation.Hold(rotation.Term{Renew: kept.Renew, Ends: kept.Ends})
	}
	e.recount()
	s.names[name] = e
	s.sched.Schedule(e)
}

// read reads the record of an entry soon.
func (s *Set) read(e *entry) {
	if e.loading {
		return
	}
	e.loading = true
	s.loads.waiting = append(s.loads.waiting, e)
	e.loadAt = len(s.loads.waiting)
	if s.loads.readers < readers && !s.closed {
		s.loads.readers++
		s.sched.Go(s.readAll)
	}
}

// readAll reads records until none is left to read.
func (s *Set) readAll() {
	turn := <-s.loads.turns
	defer func() { s.loads.turns <- turn }()
	for e, spec := s.nextRead(); e != nil; e, spec = s.nextRead() {
		item, order, err := s.restore(s.sched.Context, turn, spec)
		s.restored(e, item, order, err)
	}
}

// readFirst has the record of an entry read before the others that wait.
func (s *Set) readFirst(e *entry) {
	if e.loadAt == 0 {
		return
	}
	all := s.loads.waiting
	last := all[len(all)-1]
	all[e.loadAt-1], all[len(all)-1] = last, e
	last.loadAt, e.loadAt = e.loadAt, len(all)
}

// nextRead returns the entry that was asked for last, with its specification, which a reload may
// replace: a proxy that connects again lists all its names, and a name that comes after them is one that
// a handshake waits for.
func (s *Set) nextRead() (*entry, secret.Spec) {
	s.sched.Lock()
	defer s.sched.Unlock()
	if len(s.loads.waiting) == 0 || s.closed {
		s.loads.readers--
		return nil, secret.Spec{}
	}
	last := len(s.loads.waiting) - 1
	e := s.loads.waiting[last]
	s.loads.waiting[last], s.loads.waiting = nil, s.loads.waiting[:last]
	e.loadAt = 0
	return e, e.rule.spec(e.name)
}

// restored takes what was read for an entry.
func (s *Set) restored(e *entry, item *secret.Item, order *secret.Order, err error) {
	s.sched.Lock()
	defer s.sched.Unlock()
	e.loading = false
	if s.closed || e.Gone() || e.Item != nil && !e.stale {
		return
	}
	stale := e.stale
	e.stale = stale && err != nil && later(err)
	now := s.sched.Now()
	switch {
	case e.Item != nil && (err != nil || item == nil || !newer(item, e.Item)):
		s.kept(e, err)
		return
	case err != nil, item == nil:
		s.unreadable(e, err)
		return
	case stale:
		e.rule.counts.shared++
		if !e.Rotation.Asking() {
			e.ordered()
		}
	}
	if e.Rotation.Asking() || e.Rotation.Waiting() {
		e.Item = item
	} else {
		s.sched.Hold(e, item, now)
		if e.order == nil && !e.refused {
			e.order = order
		}
	}
	e.lost, e.waiting = 0, false
	s.notify(e)
	s.observe(e.rule, secret.Event{Kind: secret.Restored, NotAfter: item.NotAfter})
	s.sched.Schedule(e)
}

// kept goes on with the certificate that is held, as the record of another machine has no newer one, or
// cannot be used.
func (s *Set) kept(e *entry, err error) {
	if err != nil {
		s.sched.Complain("cannot use the certificate that another machine has stored", err, "rule", e.rule.conf.Name, "name", e.name)
		e.again = rotation.NewPause(readAgain, rotation.Now(s.sched.Now()))
	}
	s.sched.Schedule(e)
}

// unreadable tries again later, or takes the name for a new one: a record that cannot be read
// may be readable later, one that is refused may not. An order in flight replaces it anyway.
func (s *Set) unreadable(e *entry, err error) {
	if err == nil {
		err = ca.Errorf(ca.Internal, "the record has no certificate")
	}
	if !later(err) {
		e.lost++
	}
	s.sched.Complain("cannot use a stored certificate", err, "rule", e.rule.conf.Name, "name", e.name)
	if later(err) || e.lost < readTries || e.Rotation.Asking() {
		e.lost = min(e.lost, readTries)
		e.again = rotation.NewPause(readAgain, rotation.Now(s.sched.Now()))
		s.sched.Schedule(e)
		return
	}
	s.observe(e.rule, secret.Event{Kind: secret.StateFailed, Reason: "refused", Failure: secret.NewFailure(err, s.sched.Now(), 0)})
	e.Rotation.Release()
	if s.shared == nil { // to others it may be of use
		s.discard(e.name, term{})
	}
	e.stored, e.decided = false, false
	if e.waiting {
		e.wait = rotation.NewPause(e.rule.conf.Wait, rotation.Now(s.sched.Now()))
	}
	e.recount()
	s.decide(e)
}

// later reports whether a record that could not be used may be usable later.
func later(err error) bool {
	reason := ca.ReasonFor(err)
	return reason == ca.Unavailable || reason == ca.Deadline
}

// restore reads and verifies a record.
func (s *Set) restore(ctx context.Context, turn call.Turn, spec secret.Spec) (*secret.Item, *secret.Order, error) {
	record, err := s.load(ctx, turn, spec.Name)
	if err != nil {
		return nil, nil, err
	}
	return s.verify(spec, record)
}

func (s *Set) load(ctx context.Context, turn call.Turn, name string) (secret.Record, error) {
	return call.Do(ctx, storageTimeout, turn, func(ctx context.Context) (secret.Record, error) { return s.cfg.Storage.Load(ctx, name) })
}

func (s *Set) verify(spec secret.Spec, record secret.Record) (*secret.Item, *secret.Order, error) {
	if len(record.Content) == 0 {
		return nil, nil, nil
	}
	item, order, err := s.cfg.Manager.Restore(spec, record)
	if item != nil {
		if err := isOf(item.Identity, spec.Name); err != nil {
			return nil, order, err
		}
	}
	if item != nil && s.shared != nil {
		later := *item
		later.RenewAt = spread(item.RenewAt, item.NotAfter)
		item = &later
	}
	return item, order, err
}

// save stores what is held and what is ordered.
func (j *job) save(ctx context.Context, turn call.Turn, item *secret.Item, order *secret.Order) error {
	s := j.set
	if s.cfg.Storage == nil {
		return nil
	}
	record, err := secret.Keep(j.spec, item, order)
	if err != nil {
		return err
	}
	j.saved = true // an error does not say that it is not stored
	index := secret.Entry{Name: j.name}
	if item != nil {
		index.Renew, index.Ends = item.RenewAt, item.NotAfter
	}
	j.known = termOf(index)
	_, err = call.Do(ctx, storageTimeout, turn, func(ctx context.Context) (struct{}, error) {
		if err := s.awaitDiscard(ctx, j.name); err != nil {
			return struct{}{}, err
		}
		if s.shared != nil && (j.claim == nil || !j.claim.Held()) {
			return struct{}{}, errClaimLost
		}
		return struct{}{}, s.cfg.Storage.Store(ctx, index, record)
	})
	if err != nil {
		failure := secret.NewFailure(err, s.sched.Now(), 0)
		s.cfg.Observe(secret.Event{
			Kind: secret.StateFailed, Secret: j.conf.Name, Authority: j.spec.Authorities[0], Reason: "store", Failure: failure,
		})
	}
	return err
}
