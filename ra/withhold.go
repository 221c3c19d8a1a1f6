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
	e := o.engine
	subject := o.Subject.bounded()
	_ = e.audit.write(ctx, auditLine{ // the certificate is not given out if that fails either
		Time: e.cfg.Now(), Event: eventWithheld, Subject: &subject, Door: o.Door, Rule: cert.Rule, Authority: cert.Authority,
		RequestID: cert.RequestID, Object: text.Clean(o.Object), Names: cert.Identity.Names(), KeyType: keyType(o.csr.PublicKey),
		Serial: cert.Serial, Fingerprint: cert.Fingerprint, NotBefore: &cert.NotBefore, NotAfter: &cert.NotAfter,
		Reason: ca.ReasonFor(err).String(), Text: text.Clean(err.Error()),
	})
	e.cfg.Observe(Event{Authority: cert.Authority, Rule: cert.Rule, Result: resultWithheld})
}

var errUncollected = errors.New("the caller left before there was a certificate, and did not come back for it")

// withhold records certificates that no caller collected.
func withhold(ctx context.Context, all []*flight) {
	for _, f := range all {
		f.order.Withhold(ctx, f.cert, errUncollected)
	}
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
