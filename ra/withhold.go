package ra

import (
	"context"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Withhold records that a certificate which Issue returned was given to no caller, and why: in the
// audit log, which has it as issued, and for metrics. What no caller collects from Issue within a
// minute, the Engine records itself.
func (o *Order) Withhold(ctx context.Context, cert Certificate, err error) {
	o.engine.withhold(ctx, o.line(eventWithheld, cert, err))
}

// Note records a limitation of a certificate that a caller received in the audit log.
func (o *Order) Note(ctx context.Context, cert Certificate, err error) {
	_ = o.engine.audit.write(ctx, o.line(eventNoted, cert, err)) // it is in the log as issued
}

func (o *Order) line(event string, cert Certificate, err error) auditLine {
	subject := o.Subject.bounded()
	return auditLine{
		Time: o.engine.cfg.Now(), Event: event, Subject: &subject, Door: o.Door, Rule: cert.Rule, Authority: cert.Authority,
		RequestID: cert.RequestID, Object: text.Clean(o.Object), Names: cert.Identity.Names(), KeyType: keyType(o.csr.PublicKey),
		Serial: cert.Serial, Fingerprint: cert.Fingerprint, NotBefore: &cert.NotBefore, NotAfter: &cert.NotAfter,
		Reason: ca.ReasonFor(err).String(), Text: text.Clean(err.Error()),
	}
}

// withhold writes all lines at once: a disk that hangs must not delay the end for each of them.
func (e *Engine) withhold(ctx context.Context, lines ...auditLine) {
	if len(lines) > 0 {
		_ = e.audit.write(ctx, lines...) // the certificates are not given out if that fails either
	}
	for _, line := range lines {
		e.cfg.Observe(Event{Authority: line.Authority, Rule: line.Rule, Result: resultWithheld})
	}
}

var errUncollected = errors.New("the caller left before there was a certificate, and did not come back for it")

// uncollected records certificates that no caller collected.
func (e *Engine) uncollected(ctx context.Context, all ...*flight) {
	lines := make([]auditLine, len(all))
	for i, f := range all {
		lines[i] = f.order.line(eventWithheld, f.cert, errUncollected)
	}
	e.withhold(ctx, lines...)
}

// forget drops certificates that were not collected before then, and returns them.
func (e *Engine) forget(before time.Time) (uncollected []*flight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for base, f := range e.flights {
		if f.landed && f.callers == 0 && !f.at.After(before) {
			uncollected = append(uncollected, f)
			delete(e.flights, base)
		}
	}
	return uncollected
}
