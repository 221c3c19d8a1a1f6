package ra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// try is one call of an authority and what came of it. It runs on the worker of its slot and
// touches nothing that the lock guards.
type try struct {
	*authority
	flight *flight
	order  *Order
	slot   slot
	span   *trace.Span
	left   bool          // another goroutine has taken over, as the client hung
	ttl    time.Duration // asked for

	bearer ca.Bearer
	id     string
	of     time.Time // what the ID is made of; zero: when it is sent
	sent   time.Time
	reply  ca.Certificate
	chain  *pki.Chain
	roots  *pki.Bundle // to hand out with the chain
	cert   Certificate // made of them
	called bool        // or its token was asked for
	signed bool        // a certificate was, whatever became of it
	call   error       // of the call itself
}

// fly makes the call for a flight, verifies the reply, writes the audit line and lands. It reports
// whether its goroutine is still a task of the engine.
func (a *authority) fly(f *flight, s slot) bool {
	t := &try{authority: a, flight: f, order: f.order, slot: s, of: f.pending}
	ctx, span := trace.Start(f.ctx, "sign", trace.Internal)
	t.span = span
	err := t.run(ctx)
	if t.left {
		return t.returned(s)
	}
	t.land(err, false)
	return true
}

// takeOver ends a try as it stood when it called foreign code that does not return.
func (t *try) takeOver(ctx context.Context, err error) {
	defer t.engine.tasks.Done() // in place of the worker
	if t.called {
		t.call = err
	}
	err = fmt.Errorf("authority %q: %w", t.conf.Name, err)
	t.failed(ctx, err)
	t.land(err, true)
}

func (t *try) land(err error, hangs bool) {
	if err != nil && t.engine.ctx.Err() != nil {
		err = errClosed
	}
	t.span.End(err)
	out := outcome{
		err: err, reach: t.scopeOf(err), called: t.called, signed: t.signed, answered: t.call, hangs: hangs, of: t.of,
		took: time.Since(t.flight.item.Began()),
	}
	if err == nil {
		out.cert = t.cert
	}
	t.engine.land(t.flight, t.slot, out)
}

// errLeft ends what a worker was doing whose try was taken over.
var errLeft = errors.New("the client did not return in time")

// outside runs foreign code on the worker. If it does not return in time, another goroutine ends the try
// as it stood before, and the worker does nothing more for it: it keeps the slot until the code
// returns, however late.
func outside[T any](ctx context.Context, t *try, doing string, f func(context.Context) (T, error)) (T, error) {
	before := *t
	late := func(err error) { before.takeOver(ctx, fmt.Errorf("%s%w", doing, err)) }
	value, left, err := call.Watched(ctx, t.conf.Timeout, late, f)
	if t.left = left; left {
		return value, errLeft
	}
	if err != nil && doing != "" {
		err = fmt.Errorf("%s%w", doing, err)
	}
	return value, err
}
