package ra

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// The subjects of a refusal ([Refused]), which are in its chain.
var (
	// ErrKeyType is the type or size of the CSR's key.
	ErrKeyType = errors.New("key type not certified")
	// ErrNames is a name that is asked for.
	ErrNames = errors.New("requested name not granted")
	// ErrUsages is what the CSR would have the certificate be good for.
	ErrUsages = errors.New("requested usage not granted")
)

// Refused reports whether Issue refused the request itself: no rule grants it, or its CSR or
// lifetime cannot be right. The same request fares no better at any authority, so a door that
// has a final word can say it.
//
// A Denied or Invalid for which Refused is false is an authority's. That may be about the
// authority's settings or our credentials as well as about the request, and does not tell them
// apart, so it is not final for who asked.
func Refused(err error) bool {
	_, own := errors.AsType[*refusedError](err)
	return own
}

// refusedError marks what the engine refuses by itself.
type refusedError struct{ error }

func (r *refusedError) Unwrap() error { return r.error }

// refuse returns a refusal of the engine's own.
func refuse(reason ca.Reason, err error) *ca.Error {
	return &ca.Error{Reason: reason, Message: err.Error(), Err: &refusedError{err}}
}

// about is an error about something that has a name for doors, in its own words.
type about struct {
	what error
	text string
}

func (a about) Error() string        { return a.text }
func (a about) Is(target error) bool { return target == a.what }

// Refuse records what a door refuses by itself before it has an [Order], with the rule and the
// authority that the subject would have: in the audit log, where equal refusals are counted
// together, and for metrics. The error's reason is the refusal's; one without counts as
// [ca.Denied]. What Prepare and Issue refuse, they have recorded. An Engine that is closed records
// nothing.
func (e *Engine) Refuse(ctx context.Context, req Request, err error) {
	e.refused(ctx, req, e.policy.Load().Decide(req.Subject, req.Door), err)
}

func (e *Engine) refused(ctx context.Context, req Request, d Decision, err error) {
	if e.ctx.Err() != nil {
		return
	}
	reason := ca.ReasonFor(err)
	if reason == ca.Unknown {
		reason = ca.Denied
	}
	e.refuse(ctx, req, d, reason, err)
	e.cfg.Observe(Event{Authority: d.Authority, Rule: d.Rule, Result: reason.String()})
}

// refuse audits a refusal.
func (e *Engine) refuse(ctx context.Context, req Request, d Decision, reason ca.Reason, err error) {
	subject := req.Subject.bounded()
	e.refusals.refuse(ctx, auditLine{
		Time: e.cfg.Now(), Subject: &subject, Door: text.Clean(req.Door), Rule: d.Rule, Authority: d.Authority, Names: d.Identity.Names(),
	}, reason, err)
}
