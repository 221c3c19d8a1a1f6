package secret

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// issuance is the name of the span of one attempt to get a certificate.
const issuance = "certificate.issue"

// why says what an attempt is for.
func (l *leaf) why() string {
	switch {
	case l.held == nil:
		return "nothing held"
	case l.rotation.Lost():
		return "root lost"
	default:
		return "renewal"
	}
}

// traced is run in a span.
func (a *attempt) traced(ctx context.Context, t trace.Tracer) error {
	ctx, span := trace.Begin(ctx, t, issuance)
	span.Set("reason", a.why)
	span.SetCount("attempt", a.tries)
	err := a.run(ctx)
	endIssuance(span, a.spec, a.by.Name, a.item, err)
	return err
}

// endIssuance ends the span with what the log says of a certificate, too.
func endIssuance(span *trace.Span, spec Spec, authority string, item *Item, err error) {
	if span == nil {
		return // without a tracer, names cost nothing
	}
	span.Set("secret", spec.Name)
	span.Set("identity", spec.Identity.String())
	span.Set("authority", authority)
	if item != nil {
		span.Set("signer", item.Signer)
		span.Set("serial", item.Serial)
	}
	span.End(err)
}
