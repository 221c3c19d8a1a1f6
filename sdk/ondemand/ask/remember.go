package ask

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/recent"
	"github.com/countersign-dev/countersign/internal/tokenbucket"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Limits bound what [Remember] asks and keeps. The zero value is useful.
type Limits struct {
	// Yes and No are how long an answer is remembered. Default: 5 minutes, 2 minutes.
	Yes, No time.Duration
	// Answers is how many answers of each kind are remembered at least: 100,000 take 8 MB
	// at most. Default: 100,000.
	Answers int
	// Timeout ends a call. Default: 10 seconds.
	Timeout time.Duration
	// Calls is the most calls at once. Default: 16.
	Calls int
	// PerSecond is the rate of calls, beside Burst at once. Default: 40, 10.
	PerSecond, Burst float64
	// Waiting is the most names that wait for their call. Default: 1000.
	Waiting int
	// Shared bounds the calls of several Memories together. Default: none.
	Shared *Shared
}

func (l Limits) withDefaults() Limits {
	l.Yes = cmp.Or(l.Yes, 5*time.Minute)
	l.No = cmp.Or(l.No, 2*time.Minute)
	l.Answers = cmp.Or(l.Answers, 100_000)
	l.Timeout = cmp.Or(l.Timeout, 10*time.Second)
	l.Calls = cmp.Or(l.Calls, 16)
	l.PerSecond = cmp.Or(l.PerSecond, 40)
	l.Burst = cmp.Or(l.Burst, 10)
	l.Waiting = cmp.Or(l.Waiting, 1000)
	return l
}

// ErrBusy is the error, of reason [ca.RateLimited], for a name whose call cannot be made now, because
// strangers ask for more names than may be decided. Ask again when a client asks for the name again,
// and not before: a name that clients repeat comes before one that is asked for once.
var ErrBusy = errors.New("more names are asked for than may be decided: lower the rate of new names, or allow them by a file of names")

// errClosed ends calls that wait.
var errClosed = errors.New("the decider was closed")

// repeats is how long it counts that a name was asked for before, or asked about in vain.
const repeats = 30 * time.Second

// Memory remembers the answers of a decider and bounds its calls: one for a name at a time, some at
// once, some a second. Names that wait get their turn by registered domain. Answers are kept by a keyed
// hash of the name, refusals apart from the others, so that strangers cannot displace those. It is safe
// for concurrent use.
type Memory struct {
	decider Decider
	limits  Limits
	seeds   [2]maphash.Seed
	began   time.Time

	ctx    context.Context // of the calls
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu       sync.Mutex
	yes, no  recent.Map[hash, seconds] // until when
	asked    recent.Map[hash, seconds] // without a turn: until when that counts
	vain     recent.Map[hash, seconds] // with a turn, without an answer: until when that counts
	open     map[hash]*question        // that wait or are being asked
	waiting  queue
	inFlight int
	bucket   tokenbucket.Bucket
	timer    *time.Timer // for the next call; nil: none is needed
	counts   Counts
	closed   bool

	shares int // calls in Limits.Shared, whose lock guards it
}

// Counts are totals since the start, for metrics.
type Counts struct {
	Calls      uint64 // that were made
	Remembered uint64 // answers without a call
	Busy       uint64 // names without an answer, as too many were asked for
	Failed     uint64 // calls without an answer
	Waiting    int    // names now
}

// Remember returns the Memory of a decider. Close it to end its calls.
func Remember(d Decider, limits Limits) *Memory {
	limits = limits.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	return &Memory{
		decider: d, limits: limits, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, began: time.Now(),
		ctx: ctx, cancel: cancel, open: map[hash]*question{}, waiting: newQueue(),
		yes: recent.New[hash, seconds](2 * limits.Answers), no: recent.New[hash, seconds](2 * limits.Answers), asked: recent.New[hash, seconds](limits.Answers), vain: recent.New[hash, seconds](limits.Answers),
	}
}

// Close ends the calls and waits for them. It may be called twice.
func (m *Memory) Close() {
	m.mu.Lock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
	for q := m.waiting.next(); q != nil; q = m.waiting.next() {
		m.settle(q, false, errClosed)
	}
	m.mu.Unlock()
	m.cancel()
	m.calls.Wait()
	if m.limits.Shared != nil {
		m.limits.Shared.leave(m)
	}
}

// Recall returns an answer that is remembered; known is false if there is none. It does not block.
func (m *Memory) Recall(name string) (allowed, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recall(m.hash(name))
}

// Allowed returns the remembered answer for a name, or waits for one. An error of the decider is not
// remembered. The error is [ErrBusy] if the name got no turn.
func (m *Memory) Allowed(ctx context.Context, name string) (bool, error) {
	q, allowed, err := m.join(name)
	if q == nil {
		return allowed, err
	}
	select {
	case <-q.done:
		return q.allowed, q.err
	case <-ctx.Done():
		m.leave(q)
		return false, ca.Errorf(ca.ReasonFor(ctx.Err()), "failed to ask whether the name is allowed: %w", ctx.Err())
	}
}

// join returns the answer for a name, or the question that waits for it.
func (m *Memory) join(name string) (q *question, allowed bool, err error) {
	key := m.hash(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	allowed, known := m.recall(key)
	switch {
	case known:
		m.counts.Remembered++
		return nil, allowed, nil
	case m.closed:
		return nil, false, errClosed
	}
	if q = m.open[key]; q != nil {
		q.askers++
		m.waiting.repeat(q)
		return q, false, nil
	}
	q = &question{name: name, key: key, domain: domainOf(name), standing: m.standing(key), askers: 1, done: make(chan struct{})}
	if m.waiting.len() >= m.limits.Waiting {
		if victim := m.waiting.victim(q); victim != q {
			m.waiting.remove(victim)
			m.drop(victim)
		} else {
			m.drop(q)
			return nil, false, q.err
		}
	}
	m.open[key] = q
	m.waiting.add(q)
	m.pump()
	return q, false, nil
}

// leave takes a caller out, and its question with the last one unless it is being asked.
func (m *Memory) leave(q *question) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.askers--; q.askers == 0 && m.waiting.remove(q) {
		m.drop(q)
	}
}

// drop ends a question that is in no queue, and notes that it was there.
func (m *Memory) drop(q *question) {
	m.asked.Put(q.key, m.now()+secondsOf(repeats))
	m.counts.Busy++
	m.settle(q, false, &ca.Error{Reason: ca.RateLimited, Message: ErrBusy.Error(), Err: ErrBusy})
}

// settle answers a question.
func (m *Memory) settle(q *question, allowed bool, err error) {
	delete(m.open, q.key)
	q.allowed, q.err = allowed, err
	close(q.done)
}

// pump begins the calls that may be made now. The caller holds the lock.
func (m *Memory) pump() {
	for m.waiting.len() > 0 && m.inFlight < m.limits.Calls && !m.closed {
		if wait := m.bucket.Wait(time.Now(), m.limits.PerSecond, m.limits.Burst); wait > 0 {
			m.pumpAfter(wait)
			return
		}
		if m.limits.Shared != nil && !m.limits.Shared.take(m) {
			return
		}
		m.begin(m.waiting.next())
	}
}

// granted makes the call that Limits.Shared allows now.
func (m *Memory) granted() {
	m.mu.Lock()
	unused := m.closed || m.waiting.len() == 0
	if !unused {
		m.begin(m.waiting.next())
		m.pump()
	}
	m.mu.Unlock()
	if unused {
		m.limits.Shared.give(m)
	}
}

func (m *Memory) pumpAfter(wait time.Duration) {
	if m.timer != nil {
		return
	}
	m.timer = time.AfterFunc(wait, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.timer = nil
		m.pump()
	})
}

func (m *Memory) begin(q *question) {
	m.bucket.Spend()
	m.inFlight++
	m.counts.Calls++
	m.calls.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, m.limits.Timeout)
		defer cancel()
		allowed, err := m.decider.Allowed(ctx, q.name)
		m.answered(q, allowed, err)
		if m.limits.Shared != nil {
			m.limits.Shared.give(m)
		}
	})
}

func (m *Memory) answered(q *question, allowed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
	m.answer(q, allowed, err)
	m.pump()
}

// answer remembers what the decider returned. A call that was made goes on when its callers have
// left, as its answer is of use to those that come.
func (m *Memory) answer(q *question, allowed bool, err error) {
	switch {
	case err != nil:
		m.counts.Failed++
		m.vain.Put(q.key, m.now()+secondsOf(repeats))
		allowed = false
	case allowed:
		m.yes.Put(q.key, m.now()+secondsOf(m.limits.Yes))
		m.no.Delete(q.key)
	default:
		m.no.Put(q.key, m.now()+secondsOf(m.limits.No))
		m.yes.Delete(q.key)
	}
	m.asked.Delete(q.key)
	m.settle(q, allowed, err)
}

// Counts returns what happened so far.
func (m *Memory) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := m.counts
	counts.Waiting = m.waiting.len()
	return counts
}
