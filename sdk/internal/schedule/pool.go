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

// Pool makes the requests of some entries, to one authority. Entries of another pool never wait
// for it. The lock of the Scheduler guards it.
type Pool[E Node] struct {
	s      *Scheduler[E]
	queues [queues]Queue[E]
	starts int
	size   int
	busy   int      // workers in use
	jobs   chan Job // to the workers; has room for one each
	advice renewalAdvice[E]
	closed bool
}

// Pool adds a pool that has size requests in flight at most, each with a Signer of its own.
func (s *Scheduler[E]) Pool(size int, signer func() *secret.Signer) *Pool[E] {
	p := &Pool[E]{s: s, size: size, jobs: make(chan Job, size)}
	for i := range p.queues {
		p.queues[i].by = byRank
	}
	p.advice = renewalAdvice[E]{signer: signer(), wake: make(chan struct{}, 1)}
	s.pools = append(s.pools, p)
	for range size {
		w := &Worker{Signer: signer(), Turn: call.NewTurn()}
		s.tasks.Go(func() { p.work(w) })
	}
	s.tasks.Go(p.advise)
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
func (p *Pool[E]) Leads(item *secret.Item) (root string, ok bool) { return p.advice.signer.Leads(item) }

// Close ends the pool; jobs in flight still land. No entry may have its place there any more.
func (p *Pool[E]) Close() {
	if p.closed {
		return
	}
	p.closed = true
	p.s.pools = slices.DeleteFunc(p.s.pools, func(other *Pool[E]) bool { return other == p })
	close(p.advice.wake)
	close(p.jobs)
}

// dispatch starts requests while workers are free.
func (p *Pool[E]) dispatch(now time.Time) {
	for p.busy < p.size && !p.s.Closed() {
		q := p.pickQueue()
		e, ok := q.first()
		if !ok {
			return
		}
		q.remove(e)
		if e.Base().Rotation.Due(rotation.Now(now)) && !e.Base().gone {
			p.start(e, now)
		}
	}
}

func (p *Pool[E]) start(e E, now time.Time) {
	if job := p.s.hooks.Request(e, now); job != nil {
		p.busy++
		p.jobs <- job
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

// work runs jobs until the pool or the Scheduler is closed. The workers are permanent, as
// growing a new stack for each request takes a twentieth of its cost.
func (p *Pool[E]) work(w *Worker) {
	defer w.Signer.Close()
	for {
		select {
		case <-p.s.Context.Done():
			return
		case job, open := <-p.jobs:
			if !open {
				return
			}
			job.Run(w)
			p.land(job)
		}
	}
}

// land takes the result of a job and frees its worker.
func (p *Pool[E]) land(job Job) {
	p.s.Lock()
	defer p.s.Unlock()
	p.busy--
	if !p.s.Closed() {
		job.Land(p.s.Now())
	}
	p.s.Nudge()
}
