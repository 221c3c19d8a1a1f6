package secret

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Advice is an authority's advice on when to renew a certificate.
type Advice struct {
	// WindowStart and WindowEnd are the window that RenewAt was drawn from. RenewAt may lie
	// outside of it: not in the first tenth of the certificate's life, nor in the last.
	WindowStart time.Time `json:"window_start"`
	WindowEnd   time.Time `json:"window_end"`
	// Explanation is the URL of a page with the reason, bounded and escaped; it may be empty.
	Explanation string `json:"explanation,omitempty"`
}

// NewAdvice describes info for an operator.
func NewAdvice(info ca.RenewalInfo) *Advice {
	return &Advice{WindowStart: info.Start, WindowEnd: info.End, Explanation: text.Clean(info.Explanation)}
}

// advising is what a leaf has of its authority's advice.
type advising struct {
	turn    call.Turn // allows one question in flight, beside a request
	answers chan *question
	silent  *Authority // gives no advice
	advice  *Advice    // on the held certificate; nil: none
}

// question asks for advice on one certificate. It runs in its own goroutine.
type question struct {
	chain *pki.Chain
	conf  *Authority
	info  ca.RenewalInfo
	err   error
}

// advisable tells the rotation whether the authority of the held certificate may be asked.
func (l *leaf) advisable(now, since time.Time) {
	l.advising.advice = nil
	conf := l.by.settings()
	if _, ok := conf.Client.(ca.RenewalAdvisor); !ok || conf == l.advising.silent || !l.signedBy(l.by) {
		since = time.Time{}
	}
	l.rotation.Advisable(rotation.Now(now), since)
}

// askSilentAgain asks an authority for advice that gave none, as its provider may be another.
func (l *leaf) askSilentAgain() {
	if l.advising.silent == nil {
		return
	}
	l.advising.silent = nil
	if item := l.item.Load(); item != nil && l.by != nil {
		l.advisable(l.now(), item.Issued)
	}
}

// consult asks for advice on the held certificate.
func (l *leaf) consult() {
	q := &question{chain: l.held, conf: l.by.settings()}
	l.rotation.Consult()
	l.spawn(func() {
		q.info, q.err = advice(l.ctx, func(job func()) { go job() }, q.conf, l.advising.turn, q.chain.PEM)
		select {
		case l.advising.answers <- q:
		case <-l.ctx.Done():
		}
	})
}

// advice asks an authority about the first certificate of a chain.
func advice(ctx context.Context, run func(func()), conf *Authority, turn call.Turn, chain []byte) (ca.RenewalInfo, error) {
	advisor, ok := conf.Client.(ca.RenewalAdvisor)
	certs, err := pki.ParseCertificates(chain)
	if !ok || err != nil {
		return ca.RenewalInfo{}, ca.Errorf(ca.Unimplemented, "authority %q gives no advice", conf.Name)
	}
	info, err := call.In(ctx, run, conf.Timeout, turn, func(ctx context.Context) (ca.RenewalInfo, error) {
		return advisor.RenewalInfo(ctx, pki.EncodeCertificates(certs[:1]))
	})
	if err == nil && !info.End.After(info.Start) {
		err = ca.Errorf(ca.Internal, "the renewal window ends before it starts")
	}
	return info, err
}

// advised takes the answer to a question.
func (l *leaf) advised(q *question) {
	if l.held == nil || q.chain.Leaf != l.held.Leaf || !l.rotation.Consulting() { // its root may be another copy since
		return // on a certificate that is replaced, or takes no advice any more
	}
	now := l.now()
	if q.err != nil {
		if ca.ActionFor(q.err) == ca.Missing {
			l.advising.silent = q.conf
		} else {
			l.log.Debug("no advice on when to renew", "authority", l.by.Name, "error", text.Clean(q.err.Error()))
		}
		l.rotation.Unadvised(rotation.Now(now), q.err)
		return
	}
	l.advising.advice = NewAdvice(q.info)
	renew, moved := l.rotation.Advised(rotation.Now(now), q.info)
	if moved {
		l.moveRenewal(now, renew)
	}
}

// moveRenewal renews what is held at another time, by advice.
func (l *leaf) moveRenewal(now, renew time.Time) {
	item, advice := *l.item.Load(), l.advising.advice
	l.log.Info("renewal moved, as the authority advises", "authority", l.by.Name, "renew_at", renew, "before", item.RenewAt,
		"window_start", advice.WindowStart, "window_end", advice.WindowEnd, "explanation", advice.Explanation)
	item.RenewAt = renew
	l.item.Store(&item) // same content, so no notification
	l.store(&item)
	l.credential = l.credential.moved(now, renew)
	l.lookForToken()
}
