package schedule

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// question asks when to renew the certificate that an entry held at the time.
type question[E Node] struct {
	entry E
	item  *secret.Item
}

// renewalAdvice is the authority's advice for all entries of a pool. One goroutine asks, one
// question at a time, so that an authority that hangs keeps no worker from its work. It runs while
// questions wait.
type renewalAdvice[E Node] struct {
	waiting []question[E] // at most one for each entry
	asking  bool          // the goroutine runs
	silent  bool          // the authority gives no advice
}

// advisable sets whether the entry's rotation may ask the authority.
func (s *Scheduler[E]) advisable(e E, now time.Time) {
	var since time.Time
	if p, _, _ := s.hooks.Place(e, now); p != nil && !p.advice.silent {
		since = e.Base().Item.Issued
	}
	e.Base().Rotation.Advisable(rotation.Now(now), since)
}

// Hold takes over a certificate of the last run.
func (s *Scheduler[E]) Hold(e E, item *secret.Item, now time.Time) {
	b := e.Base()
	b.Item = item
	b.Rotation.Hold(TermOf(item))
	s.advisable(e, now)
}

// consult queues a question.
func (s *Scheduler[E]) consult(e E, now time.Time) {
	p, _, _ := s.hooks.Place(e, now)
	if p == nil || p.closed {
		e.Base().Rotation.Advisable(rotation.Now(now), time.Time{})
		return
	}
	e.Base().Rotation.Consult()
	p.advice.waiting = append(p.advice.waiting, question[E]{e, e.Base().Item})
	if !p.advice.asking && !s.Closed() {
		p.advice.asking = true
		s.tasks.Go(p.advise)
	}
}

// Kick ends the pause of the entries that it concerns, as a possible cause of failures has changed.
// What has failed is retried at once, and an authority that gave no advice is asked again.
func (s *Scheduler[E]) Kick(concerns, failed func(E) bool) {
	silent := false
	for _, p := range s.pools {
		silent = silent || p.advice.silent
		p.advice.silent = false // its provider may be another
	}
	for _, e := range s.All() {
		if !concerns(e) {
			continue
		}
		e.Base().Rotation.Kick()
		if silent && e.Base().Item != nil {
			s.advisable(e, s.Now())
		}
		if silent || failed(e) {
			s.Schedule(e)
		}
	}
}

// advise asks the queued questions. It goes on while a client that ignores its context has not
// returned, as another goroutine would be the next one to hang.
func (p *Pool[E]) advise() {
	signer := p.signer() // asks, and signs nothing
	defer signer.Close()
	for {
		q, ok := p.nextQuestion(signer)
		if !ok {
			return
		}
		if q.item == nil {
			select {
			case <-p.s.Context.Done():
			case <-time.After(linger):
			}
			continue
		}
		info, err := signer.Advice(p.s.Context, q.item)
		p.advised(q, info, err)
	}
}

// nextQuestion returns a question; ok is false if the goroutine has to end. A question without an item
// is none: the signer's last call has not returned. Questions on certificates that are replaced are
// dropped.
func (p *Pool[E]) nextQuestion(signer *secret.Signer) (q question[E], ok bool) {
	p.s.Lock()
	defer p.s.Unlock()
	over := p.closed || p.s.Closed()
	for len(p.advice.waiting) > 0 && !over {
		q, p.advice.waiting = p.advice.waiting[0], p.advice.waiting[1:]
		if q.current() {
			return q, true
		}
	}
	p.advice.waiting = nil // with its array
	p.advice.asking = !over && !signer.Idle()
	return question[E]{}, p.advice.asking
}

// current reports whether the entry still holds the certificate; its item may be another copy.
func (q question[E]) current() bool {
	b := q.entry.Base()
	return !b.gone && b.Item != nil && b.Item.Fingerprint == q.item.Fingerprint
}

// advised takes the answer to a question.
func (p *Pool[E]) advised(q question[E], info ca.RenewalInfo, err error) {
	s := p.s
	s.Lock()
	defer s.Unlock()
	now, rot := s.Now(), &q.entry.Base().Rotation
	if !q.current() || !rot.Consulting() {
		return
	}
	at := rotation.Now(now)
	if err != nil {
		p.advice.silent = p.advice.silent || ca.ActionFor(err) == ca.Missing
		rot.Unadvised(at, err)
		s.Say(func() { s.log.Debug("no advice on when to renew", "error", secret.NewFailure(err, now, 0).Text) })
	} else if renew, moved := rot.Advised(at, info); moved {
		s.moveRenewal(q.entry, renew, secret.NewAdvice(info))
	}
	s.Schedule(q.entry)
}

// moveRenewal renews what is held at another time, by advice.
func (s *Scheduler[E]) moveRenewal(e E, renew time.Time, advice *secret.Advice) {
	item := *e.Base().Item // one that was served does not change
	item.RenewAt = renew
	e.Base().Item = &item
	if s.hooks.Advised != nil {
		s.hooks.Advised(e, advice)
	}
	s.Say(func() {
		s.log.Debug("renewal moved, as the authority advises", "identity", item.Identity.String(), "renew_at", renew,
			"window_start", advice.WindowStart, "window_end", advice.WindowEnd, "explanation", advice.Explanation)
	})
}
