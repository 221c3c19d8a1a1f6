package ra

import "github.com/countersign-dev/countersign/sdk/trace"

// endRequest ends the span of a request with what the audit log has of it, too.
func endRequest(span *trace.Span, o *Order, cert Certificate, err error) {
	if span == nil {
		return // without a tracer, names cost nothing
	}
	span.Set("door", o.Door)
	span.Set("subject", o.Subject.String())
	span.Set("rule", o.decision.Rule)
	span.Set("authority", o.decision.Authority)
	span.Set("identity", o.decision.Identity.String())
	span.Set("serial", cert.Serial)
	span.End(err)
}
