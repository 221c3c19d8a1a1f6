package schedule

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// turns: every fourth start goes to a renewal, if one waits, however many entries ask for
// their first certificate; every sixteenth to one that is not in use.
const (
	turns     = 4
	idleTurns = 16
)

// The queues of a [Pool].
const (
	Renewals = iota // of entries in use
	First           // entries that hold nothing
	Idle            // entries that are not in use
	queues
)

// Job is one request. It touches no mutable state of its entry until Land.
type Job interface {
	// Run makes the request, without the lock.
	Run(*Worker)
	// Land takes the result, with the lock held. It is not called once the Scheduler is
	// closed.
	Land(now time.Time)
}

// Worker runs one job at a time.
type Worker struct {
	Signer *secret.Signer
	Turn   call.Turn // for outside calls of the job that are not the Signer's
}

// linger is how long a worker waits for its next job before it ends.
const linger = 10 * time.Second

// Pool makes the requests of some entries, to one authority. Entries of another pool never wait
// for it. A pool without requests has no goroutine. The lock of the Scheduler guards it.
type Pool[E Node] struct {
	s       *Scheduler[E]
	queues  [queues]Queue[E]
	starts  int
	size    int
	workers int
	busy    int      // workers in use
	jobs    chan Job // to the workers; has room for one each
	signer  func() *secret.Signer
	advice  renewalAdvice[E]
	closed  bool
}

// Pool adds a pool that has size requests in flight at most, each with a Signer of its own.
func (s *Scheduler[E]) Pool(size int, signer func() *secret.Signer) *Pool[E] {
	p := &Pool[E]{s: s, size: size, jobs: make(chan Job, size), signer: signer}
	for i := range p.queues {
		p.queues[i].by = byRank
	}
	s.pools = append(s.pools, p)
	return p
}

// InFlight returns the number of requests that run.
func (p *Pool[E]) InFlight() int { return p.busy }

// Waiting returns the number of entries in the request queues.
func (p *Pool[E]) Waiting() (n int) {
	for i := range p.queues {
		n += p.queues[i].Len()
	}
	return n
}

// Queued returns the number of entries in one request queue.
func (p *Pool[E]) Queued(queue int) int { return p.queues[queue].Len() }

// Leads is [secret.Signer.Leads] of the pool's authority.
func (p *Pool[E]) Leads(item *secret.Item) (root string, ok bool) { return p.signer().Leads(item) }

// Close ends the pool; jobs in flight still land. No entry may have its place there any more.
func (p *Pool[E]) Close() {
	if p.closed {
		return
	}
	p.closed = true
	p.s.pools = slices.DeleteFunc(p.s.pools, func(other *Pool[E]) bool { return other == p })
	close(p.jobs)
}

// dispatch starts a request if a worker is free and one waits. It reports whether it did.
func (p *Pool[E]) dispatch(now time.Time) bool {
	for p.busy < p.size && !p.s.Closed() {
		q := p.pickQueue()
		e, ok := q.first()
		if !ok || !p.take() {
			return false
		}
		q.remove(e)
		if e.Base().Rotation.Due(rotation.Now(now)) && !e.Base().gone {
			if job := p.s.hooks.Request(e, now); job != nil {
				p.start(job)
				return true
			}
		}
		p.give()
	}
	return false
}

// take takes a place in flight, if there is one for the pool.
func (p *Pool[E]) take() bool {
	if p.s.places != nil && !p.s.places.Take(p.busy) {
		return false
	}
	p.busy++
	return true
}

func (p *Pool[E]) give() {
	if p.s.places != nil {
		p.s.places.Give(p.busy)
	}
	p.busy--
}

func (p *Pool[E]) start(job Job) {
	p.jobs <- job
	if p.workers < p.busy {
		p.workers++
		p.s.tasks.Go(p.work)
	}
}

// pickQueue returns the queue for the next request: the one whose head has waited longest
// or expires first. First certificates cannot keep renewals from their turn.
func (p *Pool[E]) pickQueue() *Queue[E] {
	renewals, first, idle := &p.queues[Renewals], &p.queues[First], &p.queues[Idle]
	p.starts++
	switch {
	case idle.Len() > 0 && (renewals.Len()+first.Len() == 0 || p.starts%idleTurns == 0):
		return idle
	case first.Len() == 0:
		return renewals
	case renewals.Len() == 0:
		return first
	case p.starts%turns == 0 || renewals.list[0].Base().rank.Before(first.list[0].Base().rank):
		return renewals
	}
	return first
}

// work runs jobs until none came for a while, or the pool or the Scheduler is closed. A worker runs
// many, as growing a new stack for each request takes a twentieth of its cost.
func (p *Pool[E]) work() {
	w := &Worker{Signer: p.signer(), Turn: call.NewTurn()}
	defer w.Signer.Close()
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		select {
		case <-p.s.Context.Done():
			return
		case job, open := <-p.jobs:
			if !open {
				p.await(w)
				return
			}
			job.Run(w)
			p.land(job)
		case <-idle.C:
			if p.retire(w) {
				return
			}
		}
		idle.Reset(linger)
	}
}

// retire takes a worker out that no job waits for. One whose last call has not returned stays: the
// next worker would make one more that hangs.
func (p *Pool[E]) retire(w *Worker) bool {
	p.s.Lock()
	defer p.s.Unlock()
	if p.busy >= p.workers || w.hangs() {
		return false
	}
	p.workers--
	return true
}

// hangs reports whether a call of the worker has not returned.
func (w *Worker) hangs() bool { return !w.Signer.Idle() || !w.Turn.Free() }

// await keeps a place in flight until the last call of a closed pool's worker has returned: else each
// reload would add as many calls that hang as a pool may have.
func (p *Pool[E]) await(w *Worker) {
	if p.s.places == nil || !w.hangs() {
		return
	}
	p.locked(p.s.places.Keep)
	defer p.locked(p.s.places.Free)
	for w.hangs() {
		select {
		case <-p.s.Context.Done():
			return
		case <-time.After(linger):
		}
	}
}

func (p *Pool[E]) locked(change func()) {
	p.s.Lock()
	defer p.s.Unlock()
	change()
}

// land takes the result of a job and frees its worker.
func (p *Pool[E]) land(job Job) {
	p.s.Lock()
	defer p.s.Unlock()
	p.give()
	if !p.s.Closed() {
		job.Land(p.s.Now())
	}
	p.s.Nudge()
}
