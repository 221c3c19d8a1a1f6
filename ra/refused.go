package ra

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// ErrKeyType is in the chain of a refusal ([Refused]) of the type or size of the CSR's key.
var ErrKeyType = errors.New("key type not certified")

// Refused reports whether Issue refused the request itself: no rule grants it, or its CSR or
// lifetime cannot be right. The same request fares no better at any authority, so a door that
// has a final word can say it.
//
// A Denied or Invalid for which Refused is false is an authority's. That may be about the
// authority's settings or our credentials as well as about the request, and tells nobody
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

// keyError is an error about a key's type, in its own words.
type keyError string

func (f keyError) Error() string        { return string(f) }
func (f keyError) Is(target error) bool { return target == ErrKeyType }

// Refuse records what a door refuses by itself, for a verified subject: in the audit log, where
// equal refusals are counted together, and for metrics. The error's reason says what it is, such
// as [ca.Denied]. What Issue refuses, it has recorded. An Engine that is closed records nothing.
func (e *Engine) Refuse(ctx context.Context, req Request, err error) {
	if e.ctx.Err() != nil {
		return
	}
	e.refuse(ctx, req, Decision{}, err)
	e.cfg.Observe(Event{Result: ca.ReasonFor(err).String()})
}
