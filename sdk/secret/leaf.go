package secret

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// leaf is one KeyPair secret. Its goroutine, run, owns every field that is neither atomic
// nor fixed. It makes no outside call itself: an attempt makes them, one at a time, and
// reports back. The rotation says what to do when.
//
// A leaf lives over a reload, which sends it a new plan.
type leaf struct {
	*slot
	worker
	*engine
	log *slog.Logger

	done    chan struct{} // closed when run has ended
	wakeup  chan struct{}
	replies chan *attempt

	restorer *restorer   // nil if there is nothing to restore
	record   chan func() // gets what to do with the record of the last run, first of all
	report   atomic.Pointer[Status]

	plan
	rotation   rotation.Machine
	holding    // served
	trying     // for the next
	credential credential
	advising   advising
	dueAs      dueness // as urgent has it
	count      int     // of what was served
}

// holding is what a leaf serves, and whether peers can verify it.
type holding struct {
	held     *pki.Chain // nil: nothing
	by       *authority // that signed held, or what was held before; nil: none
	restored bool       // held comes from the last run
	roots    rootCheck
	anchor   anchored
}

// trying is what a leaf does to get the next certificate.
type trying struct {
	at        int // index in authorities of the one to ask next
	sent      map[*authority]*sent
	kicked    bool     // the authority may have another key pair to give
	flight    *attempt // nil: none is in flight
	next      *attempt // succeeded, but its certificate is not served yet
	untilRoot bool     // next waits for its root to be everywhere
	failure   *Failure // of the last attempt; nil: it succeeded
	tries     int      // attempts since the last that did not fail
}

// plan is what a leaf is configured to be. It does not change; a reload brings another.
type plan struct {
	spec        Spec
	authorities []*authority // that may sign it, in fallback order
	turns       []call.Turn  // at each of them: one request in flight for an identity
	taken       *owners      // of the names of all secrets
}

func newLeaf(m *Manager, p plan) *leaf {
	l := &leaf{
		slot: m.places.of(p.spec.Name), worker: newWorker(m.ctx), engine: &m.engine,
		log: m.config.Log.With("secret", p.spec.Name), plan: p, trying: trying{sent: make(map[*authority]*sent)},
		done: make(chan struct{}), wakeup: make(chan struct{}, 1), replies: make(chan *attempt),
		advising: advising{turn: call.NewTurn(), answers: make(chan *question)},
	}
	l.rotation.Want(true)
	l.publish(l.now())
	return l
}

// run owns the secret until its context ends.
func (l *leaf) run() {
	defer close(l.done)
	defer l.notDue()
	if l.restorer != nil && !l.awaitRecord() {
		return
	}
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		timer.Reset(l.step())
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		case <-l.wakeup:
		case f := <-l.inbox:
			f()
		case a := <-l.replies:
			l.settle(a)
		case q := <-l.advising.answers:
			l.advised(q)
		}
	}
}

// awaitRecord restores what the last run stored. It is false if the context has ended.
func (l *leaf) awaitRecord() bool {
	select {
	case restore := <-l.record:
		restore()
		return true
	case <-l.ctx.Done():
		return false
	}
}

// end stops run and waits for it. An attempt in flight is left to its context.
func (l *leaf) end() {
	l.cancel()
	<-l.done
}

// step does what is due and returns how long to sleep.
func (l *leaf) step() time.Duration {
	if !l.rotation.Wanted() && l.watched() {
		l.rotation.Want(true)
	}
	now := l.now()
	l.checkRoots(now)
	l.checkAnchor(now)
	l.follow(now)
	l.bringForward(now)
	do := l.rotation.Step(rotation.Now(now))
	if do.Install {
		l.install(now)
		do = l.rotation.Step(rotation.Now(now))
	}
	if !l.rotation.Waiting() {
		l.next = nil
	}
	if do.ReportExpired {
		l.reportExpired()
	}
	if do.Ask {
		l.ask()
	}
	if do.Consult {
		l.consult()
	}
	l.recordDue(now)
	l.publish(now)
	sleep := look
	if l.untilRoot {
		sleep = holdPoll
	}
	if do.Wake > 0 {
		sleep = min(sleep, do.Wake)
	}
	return sleep
}

// onlyLast reports whether the next attempt should sign only if its token has no
// successor. It is false while a certificate is needed: such an attempt could return
// empty-handed and start again at once.
func (l *leaf) onlyLast() bool { return !l.rotation.Needed(rotation.Now(l.now())) && l.at == 0 }

// install serves the certificate of l.next, which is now valid.
func (l *leaf) install(now time.Time) {
	a, item := l.next, l.next.item
	l.next = nil
	if l.by != nil && l.by != a.by {
		l.by.forget(l) // keep no roots for a certificate that is no longer held
	}
	l.holding, l.failure = holding{held: a.chain, by: a.by}, nil
	l.credential = l.credential.after(a, l.authorities[0], now, item.RenewAt)
	l.lookForToken()
	l.count++
	item.Issued = now
	l.advisable(now, now)
	l.put(item)
	l.store(item)
	l.log.Info("serving new certificate", "authority", a.by.Name, "identity", item.Identity.String(), "serial", item.Serial,
		"fingerprint", item.Fingerprint, "signer", item.Signer, "not_after", item.NotAfter, "renew_at", item.RenewAt)
	l.emit(a.by, Event{Kind: Rotated, NotAfter: item.NotAfter})
	l.checkRoots(now) // the roots may have changed since it was verified
	l.checkAnchor(now)
	l.bringForward(now)
}

// reportExpired reports that the held certificate has expired. Those that have it keep it;
// new callers do not get it.
func (l *leaf) reportExpired() {
	l.log.Error("certificate expired before it could be renewed", "not_after", l.held.Ends)
	l.emit(l.signer(), Event{Kind: Expired, NotAfter: l.held.Ends})
}

func (l *leaf) emit(by *authority, e Event) {
	e.Secret, e.Authority = l.name, by.Name
	l.observe(e)
}

func (l *leaf) publish(now time.Time) {
	s := statusOf(l.spec, l.item.Load(), now)
	s.Rotations, s.Asking, s.Released = l.count, l.rotation.Asking(), !l.rotation.Wanted()
	if l.failure.pending() {
		s.Pending = l.failure
	} else {
		s.Failure = l.failure
	}
	s.Restored, s.TokenExpiry, s.Missing = l.restored, l.credential.ends, l.missing()
	s.Advice = l.advising.advice
	l.report.Store(&s)
}

// status returns the last report, adjusted to the current time.
func (l *leaf) status() Status {
	s := *l.report.Load()
	s.Item, s.Held, s.ExpiredSince = l.item.Load(), false, time.Time{}
	s.judge(l.now())
	return s
}

// nudge wakes the goroutine.
func (l *leaf) nudge() {
	select {
	case l.wakeup <- struct{}{}:
	default: // a wake-up is pending
	}
}
