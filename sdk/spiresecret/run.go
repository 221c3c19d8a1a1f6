package spiresecret

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	steady = time.Minute // a session that held

	// lookEvery is how often the wall clock is looked at: after a suspend, timers are late.
	lookEvery = 30 * time.Second
)

// run keeps a session open until ctx ends.
func (s *Source) run(ctx context.Context) {
	defer close(s.done)
	replies, ended := make(chan *workloadv1.X509SVIDResponse), make(chan error, 1)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	first, open := time.After(0), false
	var again <-chan struct{} // closed when the pause after a session is over
	begin := func() {
		again, open, s.began = nil, true, time.Now()
		go func() { ended <- s.session(ctx, hand(ctx, replies)) }()
	}
	for {
		select {
		case <-first:
			begin()
		case <-again:
			begin()
		case reply := <-replies:
			s.take(reply)
		case err := <-ended:
			open = false
			if ctx.Err() == nil {
				again = rotation.After(ctx, s.fail(err), s.config.Now)
			}
		case <-look.C:
			if s.early != nil {
				s.judge(s.early)
			}
			s.reportExpired()
		case <-ctx.Done():
			if open {
				<-ended //nolint:errcheck // ctx has ended
			}
			return
		}
	}
}

// hand returns a function that passes replies on until ctx ends.
func hand(ctx context.Context, replies chan<- *workloadv1.X509SVIDResponse) func(*workloadv1.X509SVIDResponse) {
	return func(reply *workloadv1.X509SVIDResponse) {
		select {
		case replies <- reply:
		case <-ctx.Done():
		}
	}
}

// take serves what is new in a reply.
func (s *Source) take(reply *workloadv1.X509SVIDResponse) {
	defer s.hear()
	if s.failing {
		s.failing = false
		s.config.Log.Info("the Workload API is available again")
	}
	s.list(reply.GetCrl()) // first, as a new root needs its list
	s.takeDomains(reply)
	s.judge(reply)
	s.reportExpired()
}

// judge judges each secret on its own. A reply with a certificate that is not valid yet is judged
// again later, which does not concern the Workload API: a session that has failed since stays so.
func (s *Source) judge(reply *workloadv1.X509SVIDResponse) {
	s.early = nil
	for _, e := range s.entries {
		item, useless, err := e.spec.read(reply, s.config.Now())
		if err == nil {
			s.leaveOut(e, useless)
			s.serve(e, item, len(reply.GetSvids()))
			continue
		}
		if !s.failing {
			s.refuse(e, err)
		}
		if fault, ok := errors.AsType[*pki.CheckError](err); ok && fault.Check == tooEarly {
			s.early = reply
		}
	}
}

// leaveOut logs roots that are not served, once.
func (s *Source) leaveOut(e *entry, useless []error) {
	said := ""
	if len(useless) > 0 {
		said = text.Clean(useless[0].Error())
	}
	if said != "" && said != e.useless {
		s.config.Log.Warn("roots of the Workload API are left out", "secret", text.Clean(e.spec.Name), "count", len(useless), "first", said)
	}
	e.useless = said
}

// serve replaces the held item if the new one differs.
func (s *Source) serve(e *entry, item *secret.Item, svids int) {
	s.mu.Lock()
	was := e.held
	same := was != nil && was.Version == item.Version && bytes.Equal(was.Key, item.Key)
	if !s.failing {
		e.failure, e.err = nil, nil
	}
	var tell []func()
	if !same {
		e.held = item
		e.count++
		tell = e.watchers.All()
	}
	s.mu.Unlock()
	e.said = ""
	if same {
		return
	}
	e.expired = false
	s.report(e, was, item, svids)
	for _, notify := range tell {
		notify()
	}
}

func (s *Source) report(e *entry, was, item *secret.Item, svids int) {
	if s.lent {
		return // the Manager reports what it takes
	}
	log := s.config.Log.With("secret", text.Clean(e.spec.Name))
	if item.Kind == secret.TrustBundle {
		log.Info("serving roots from the Workload API", "roots", len(item.RootFingerprints), "fingerprints", item.RootFingerprints)
		return
	}
	log.Info("serving certificate from the Workload API", "identity", text.Clean(item.Identity.String()), "svids", svids,
		"serial", item.Serial, "fingerprint", item.Fingerprint, "not_after", item.NotAfter)
	s.config.Observe(secret.Event{Kind: secret.Rotated, Secret: e.spec.Name, Authority: AuthorityName, NotAfter: item.NotAfter})
	if was != nil && was.Identity.SPIFFEID.String() != item.Identity.SPIFFEID.String() {
		log.Warn("the Workload API changed the identity; set spiffe_id to accept one only",
			"before", was.Identity.SPIFFEID.String(), "now", item.Identity.SPIFFEID.String())
		s.config.Observe(secret.Event{Kind: secret.NameDiffers, Secret: e.spec.Name, Authority: AuthorityName, NotAfter: item.NotAfter})
	}
}

// hear notes that the Workload API has answered, or that a session has failed.
func (s *Source) hear() {
	select {
	case <-s.answered:
	default:
		close(s.answered)
	}
}

// refuse keeps the held item of an entry that the reply has nothing good for, and logs a new
// reason once.
func (s *Source) refuse(e *entry, err error) {
	failure := secret.NewFailure(err, s.config.Now(), 0)
	failure.NextTry = time.Time{} // the next reply comes unasked
	held := s.note(e, failure, err)
	if failure.Text == e.said {
		return
	}
	e.said = failure.Text
	s.config.Log.Warn("cannot use what the Workload API sends", "secret", text.Clean(e.spec.Name), "error", failure.Text, "keeps_the_one_before", held)
	s.config.Observe(secret.Event{Kind: secret.Failed, Secret: e.spec.Name, Authority: AuthorityName, Reason: failure.Reason, Failure: failure})
}

func (s *Source) note(e *entry, failure *secret.Failure, err error) (held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.failure, e.err = failure, err
	return e.held != nil
}

// fail records the end of a session for all secrets and returns when to begin the next one.
func (s *Source) fail(err error) (wait time.Duration) {
	wait = s.next(err)
	failure := secret.NewFailure(err, s.config.Now(), wait)
	for _, e := range s.entries {
		s.note(e, failure, err)
	}
	s.hear()
	s.reportExpired()
	s.failing = true
	if failure.Text != s.said {
		s.said = failure.Text
		s.config.Log.Warn("the Workload API is not available; what is held is served", "error", failure.Text, "next_try", failure.NextTry)
	}
	for _, name := range s.pairs() {
		s.config.Observe(secret.Event{Kind: secret.Failed, Secret: name, Authority: AuthorityName, Reason: failure.Reason, Failure: failure})
	}
	return wait
}

// pairs returns the names of the key pairs; without any, the empty name, which stands for
// roots in a [secret.Event].
func (s *Source) pairs() []string {
	var names []string
	for _, e := range s.entries {
		if e.spec.Kind == secret.KeyPair {
			names = append(names, e.spec.Name)
		}
	}
	if len(names) == 0 {
		return []string{""}
	}
	return names
}

// next returns the wait before the next session. A session that held begins anew; a server that
// answers and hangs up does not.
func (s *Source) next(err error) time.Duration {
	now, left := time.Now(), s.left()
	if now.Sub(s.began) >= steady {
		s.waits.Reset()
		s.said = ""
	}
	return s.waits.After(err, now, left, 0) // short for ever: a socket of the same machine is cheap to try
}

// left returns how long all secrets are still held; zero if one is not.
func (s *Source) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := time.Duration(1<<63 - 1)
	for _, e := range s.entries {
		if e.held == nil {
			return 0
		}
		left = min(left, e.held.NotAfter.Sub(s.config.Now()))
	}
	return max(0, left)
}

// reportExpired reports once that a held item has expired.
func (s *Source) reportExpired() {
	for _, e := range s.entries {
		if s.lent || e.held == nil || e.expired || !e.held.Expired(s.config.Now()) {
			continue
		}
		e.expired = true
		s.config.Log.Error("secret from the Workload API expired and was not replaced", "secret", text.Clean(e.spec.Name), "not_after", e.held.NotAfter)
		s.config.Observe(secret.Event{Kind: secret.Expired, Secret: e.spec.Name, Authority: AuthorityName, NotAfter: e.held.NotAfter})
	}
}
