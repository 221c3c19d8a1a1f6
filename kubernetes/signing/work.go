package signing

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Work calls a handler for each of many objects, for each object in one goroutine at a time. A
// handler may block for as long as its object waits for a certificate. Objects without room wait
// without a goroutine. The owner with the fewest handled objects goes first, and of its objects the
// oldest. An owner gets no more room than is still free for all others, so that no number of
// floods takes all of it. A large object takes the room of several ([Weight]), so that the room bounds
// the memory of all handlers in sum.
//
//	Put ──▶ ready ── room ──▶ handled ──┬─ again > 0 ─▶ sleeps ── the time ──▶ ready
//	          ▲                 │       ├─ again = 0 ─▶ rests  ── Put ───────▶ ready
//	          └── Put meanwhile ┘       └─ Over ──────▶ over, until it is dropped
//
// All methods are safe for concurrent use, and none blocks but Close.
type Work[T any] struct {
	handle func(ctx context.Context, object T) (again time.Duration)
	room   int
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	jobs    map[types.UID]*job[T]
	ready   map[string]*line[T] // by owner; none is empty
	handled map[string]int      // the weight by owner; none is 0
	busy    int                 // sum of handled
	closed  bool
}

// Over is what a handler returns for an object that needs nothing more, however it changes.
const Over time.Duration = -1

type state int

const (
	rests   state = iota // until it changes
	sleeps               // until its timer ends
	ready                // stands in line
	handled              // its handler runs
	over                 // until it is dropped
)

// job is the work on one object.
type job[T any] struct {
	uid    types.UID
	owner  string
	object T
	made   time.Time
	weight int
	state  state
	place  int                // in line, while it is ready
	timer  *time.Timer        // while it sleeps
	end    context.CancelFunc // while it is handled
	again  bool               // it changed meanwhile
	gone   bool               // it was dropped meanwhile
}

// NewWork returns a Work that ends with ctx and handles objects of at most so much weight at once. The
// handler's context ends when its object is dropped, and with ctx. It returns when to call it
// again: after that time, if that is zero, once the object has changed, and if it is [Over],
// never: an informer may be late and show the object as it was before.
func NewWork[T any](ctx context.Context, room int, handle func(context.Context, T) time.Duration) *Work[T] {
	w := &Work[T]{handle: handle, room: room, jobs: map[types.UID]*job[T]{}, ready: map[string]*line[T]{}, handled: map[string]int{}}
	w.ctx, w.cancel = context.WithCancel(ctx) //nolint:gosec // Close calls it
	return w
}

// Put adds an object of an owner, such as its namespace, that was made at that time, or replaces
// the one with the same UID, which is handled again. It does not wake an object that
// sleeps: a client must not be able to shorten the wait by changing the object.
func (w *Work[T]) Put(uid types.UID, owner string, made time.Time, object T) {
	w.put(uid, owner, made, 1, object)
}

func (w *Work[T]) put(uid types.UID, owner string, made time.Time, weight int, object T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	j := w.jobs[uid]
	if j == nil {
		j = &job[T]{uid: uid, owner: owner, made: made, weight: min(weight, w.room)}
		w.jobs[uid] = j
	}
	j.object, j.gone = object, false
	w.look(j)
}

// Again has an object handled again that rests. It does nothing for one that is not known.
func (w *Work[T]) Again(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[uid]; j != nil && !w.closed {
		w.look(j)
	}
}

// look puts a job in line that rests, or once more after its handler. The lock is held.
func (w *Work[T]) look(j *job[T]) {
	switch j.state {
	case rests:
		w.enter(j)
	case handled:
		j.again = true
	}
}

// Drop forgets an object. If it is handled now, that context ends.
func (w *Work[T]) Drop(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[uid]
	switch {
	case j == nil:
	case j.state == handled:
		j.gone = true
		j.end()
	default:
		w.forget(j)
	}
}

// Len returns how many objects are known.
func (w *Work[T]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs)
}

// Close ends all handlers and returns when they have returned.
func (w *Work[T]) Close() {
	w.cancel()
	w.mu.Lock()
	w.closed = true
	for _, j := range w.jobs {
		if j.state != handled {
			w.forget(j)
		}
	}
	w.mu.Unlock()
	w.tasks.Wait()
}

// forget removes a job that is not handled. The lock is held.
func (w *Work[T]) forget(j *job[T]) {
	switch j.state {
	case ready:
		heap.Remove(w.ready[j.owner], j.place)
		w.tidy(j.owner)
	case sleeps:
		j.timer.Stop()
	}
	j.gone = true
	delete(w.jobs, j.uid)
}

// enter puts a job in line. The lock is held.
func (w *Work[T]) enter(j *job[T]) {
	j.state, j.timer = ready, nil
	if w.ready[j.owner] == nil {
		w.ready[j.owner] = &line[T]{}
	}
	heap.Push(w.ready[j.owner], j)
	w.next()
}

// next starts handlers while there is room. The lock is held.
func (w *Work[T]) next() {
	for w.ctx.Err() == nil {
		owner, found := w.neediest()
		if !found {
			return
		}
		j := (*w.ready[owner])[0]
		if free := w.room - w.busy; j.weight > free || w.handled[owner]+j.weight-1 > free {
			return
		}
		heap.Pop(w.ready[owner])
		w.tidy(owner)
		ctx, end := context.WithCancel(w.ctx)
		j.state, j.end, j.again = handled, end, false
		w.handled[owner] += j.weight
		w.busy += j.weight
		object := j.object
		w.tasks.Go(func() {
			defer end()
			w.done(j, w.handle(ctx, object))
		})
	}
}

// neediest returns the owner with a line that has the fewest handled, of equal ones that of
// the oldest object. The lock is held.
func (w *Work[T]) neediest() (best string, found bool) {
	for owner, l := range w.ready {
		fewer := w.handled[owner] - w.handled[best]
		if !found || fewer < 0 || fewer == 0 && (*l)[0].made.Before((*w.ready[best])[0].made) {
			best, found = owner, true
		}
	}
	return best, found
}

// tidy forgets the line and the count of an owner that has none. The lock is held.
func (w *Work[T]) tidy(owner string) {
	if l := w.ready[owner]; l != nil && len(*l) == 0 {
		delete(w.ready, owner)
	}
	if w.handled[owner] == 0 {
		delete(w.handled, owner)
	}
}

// done takes what a handler returned.
func (w *Work[T]) done(j *job[T], again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy -= j.weight
	w.handled[j.owner] -= j.weight
	w.tidy(j.owner)
	j.state, j.end = rests, nil
	switch {
	case j.gone || w.ctx.Err() != nil:
		w.forget(j)
	case again < 0:
		j.state = over
	case again > 0:
		j.state = sleeps
		j.timer = time.AfterFunc(again, func() { w.wake(j) })
	case j.again:
		w.enter(j)
	}
	w.next()
}

func (w *Work[T]) wake(j *job[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.state == sleeps && !j.gone {
		w.enter(j)
	}
}
