package secret

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// storageTimeout limits each call of a Storage, and the whole wait of a start or a Close.
const storageTimeout = 5 * time.Second

// keeper hands records to the Storage in its own goroutine, so that a slow disk delays no
// rotation. A nil keeper keeps nothing. It retries a failed call until a newer record takes
// its place: a key that was released must not come back because the disk was full.
type keeper struct {
	storage Storage
	observe func(Event)
	log     *slog.Logger
	asks    call.Turn

	mu      sync.Mutex
	order   []string // waiting names, oldest first
	waiting map[string]Record
	wake    chan struct{}
	closed  bool
	waits   rotation.Waits      // used by run alone
	lost    map[string]struct{} // records that could not be stored; used by run alone
	done    chan struct{}       // closed when run has ended
}

func newKeeper(c Config) *keeper {
	if c.Storage == nil {
		return nil
	}
	k := &keeper{
		storage: c.Storage, observe: c.Observe, log: c.Log, asks: call.NewTurn(),
		waiting: make(map[string]Record), wake: make(chan struct{}, 1), lost: make(map[string]struct{}), done: make(chan struct{}),
	}
	return k
}

// put queues the record for storage. It replaces a waiting record of the same name.
func (k *keeper) put(name string, r Record) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, waits := k.waiting[name]; !waits {
		k.order = append(k.order, name)
	}
	k.waiting[name] = r
	k.nudge()
}

// forget queues the removal of the record.
func (k *keeper) forget(name string) { k.put(name, Record{}) }

func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// next returns the next record to store. over reports that there will be no more.
func (k *keeper) next() (name string, r Record, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.order) == 0 {
		return "", Record{}, k.closed
	}
	name, k.order = k.order[0], k.order[1:]
	r = k.waiting[name]
	delete(k.waiting, name)
	return name, r, false
}

// run stores records until ctx ends, or close was called and none waits.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	for ctx.Err() == nil {
		name, r, over := k.next()
		var again <-chan time.Time // never
		switch {
		case over:
			return
		case name != "":
			if k.store(ctx, name, r) {
				continue
			}
			again = time.After(k.waits.After(ca.ErrUnavailable, time.Now(), 24*time.Hour, 0))
		}
		select {
		case <-k.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// store stores the record, or puts it back. It reports whether to go on at once.
func (k *keeper) store(ctx context.Context, name string, r Record) bool {
	_, err := call.Do(ctx, storageTimeout, k.asks, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, k.storage.Store(ctx, name, r)
	})
	if err != nil {
		k.lost[name] = struct{}{}
		k.failed("store", name, r.Authority, err)
		return k.putBack(name, r)
	}
	k.waits.Reset()
	k.found(name)
	return true
}

// found reports that all records are stored, if one was not before.
func (k *keeper) found(name string) {
	if _, was := k.lost[name]; !was {
		return
	}
	if delete(k.lost, name); len(k.lost) == 0 {
		k.log.Info("the state of this run is stored again")
		k.observe(Event{Kind: StateKept})
	}
}

// putBack queues a record again, unless there is a newer one or no more time.
func (k *keeper) putBack(name string, r Record) (lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, newer := k.waiting[name]; newer || k.closed {
		return true
	}
	k.order = append(k.order, name)
	k.waiting[name] = r
	return false
}

// load returns the record name; after an error, which it also reports, the zero Record.
func (k *keeper) load(ctx context.Context, name string) (Record, error) {
	r, err := call.Do(ctx, storageTimeout, k.asks, func(ctx context.Context) (Record, error) {
		return k.storage.Load(ctx, name)
	})
	if err != nil {
		k.failed("load", name, "", err)
		return Record{}, err
	}
	return r, nil
}

// failed reports a record that could not be stored, loaded or used; what is a key of
// stateFaults.
func (k *keeper) failed(what, name, authority string, err error) {
	k.log.Warn("the state of the last run: "+stateFaults[what], "record", text.Clean(name), "error", text.Clean(err.Error()))
	k.observe(Event{Kind: StateFailed, Authority: authority, Reason: what, Failure: &Failure{Reason: what, Text: text.Clean(err.Error()), At: time.Now()}})
}

// stateFaults maps the reasons of StateFailed to sentences.
var stateFaults = map[string]string{
	"store":   "a record could not be stored; what is served is unaffected, and it is tried again",
	"load":    "a record could not be read, and is ignored",
	"refused": "a record is not good any more, and is ignored",
}

// refused reports a record that does not fit the current settings.
func (k *keeper) refused(name string, r Record, err error) {
	k.failed("refused", name, r.Authority, err)
}

// close returns once everything is stored or storageTimeout has passed.
func (k *keeper) close(cancel context.CancelFunc) {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.closed = true
	k.nudge()
	k.mu.Unlock()
	timer := time.AfterFunc(storageTimeout, cancel)
	defer timer.Stop()
	<-k.done
	cancel()
}

// begin starts the goroutine and returns the function that ends it.
func (k *keeper) begin() (end func()) {
	if k == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go k.run(ctx)
	return func() { k.close(cancel) }
}
