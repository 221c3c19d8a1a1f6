package ra

import "github.com/countersign-dev/countersign/sdk/pki"

// Guard keeps an authority from being asked that would do harm, whatever the policy is. Its
// errors are as those of [ca.Client], and are not final. It must not block, and must be safe for
// concurrent use.
type Guard interface {
	// Before returns why an authority, which has these roots as far as is known, may not be asked
	// for a subject of the cluster, or nil.
	Before(authority, cluster string, roots *pki.Bundle) error
	// After returns why the authority's certificate may not be given out there, or nil.
	After(cert Certificate, cluster string) error
}

// mayAsk has the guard look at what is asked for, if there is one.
func (e *Engine) mayAsk(o *Order) error {
	if e.cfg.Guard == nil || o.door.Own {
		return nil
	}
	authority := o.decision.Authority
	return e.cfg.Guard.Before(authority, o.Subject.Cluster, e.Roots(authority))
}

// mayGive has the guard look at what came.
func (e *Engine) mayGive(o *Order, cert Certificate) error {
	if e.cfg.Guard == nil || o.door.Own {
		return nil
	}
	return e.cfg.Guard.After(cert, o.Subject.Cluster)
}
