package ra

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// below checks the reply's chain against the order and roots, as an agent would, and for what
// agents do not mind but an authority for others must.
func (t *try) below(roots *pki.Bundle, now time.Time) (*pki.Chain, error) {
	o := t.order
	check := pki.Check{
		Key: o.csr.PublicKey, Identity: o.decision.Identity, Names: pki.ExactNames, RequestID: t.id,
		Roots: roots, Now: now, AskedUntil: now.Add(t.ttl), AcceptLonger: t.conf.AcceptLongerTTL && !o.door.strict(),
	}
	verified, err := check.Chain(t.reply.Chain)
	if err != nil {
		return nil, err
	}
	leaf := verified.Leaf
	if err := o.decision.Usages.check(leaf); err != nil {
		return nil, err
	}
	if err := o.checkSubject(leaf); err != nil {
		return nil, err
	}
	return verified, o.door.check(leaf, o.ttl, t.sent)
}

// checkSubject refuses what the CSR may have smuggled in besides a common name: organizations,
// which Kubernetes takes as groups, and all else that some program may read as a right.
func (o *Order) checkSubject(leaf *x509.Certificate) error {
	for _, asked := range pki.SubjectValues(o.csr.Subject) {
		for _, got := range leaf.Subject.Names {
			if asked.Type.Equal(got.Type) && asked.Value == got.Value && asked.Value != leaf.Subject.CommonName {
				return &pki.CheckError{Check: "names", Detail: fmt.Sprintf("the leaf has %.256q in its subject, as the CSR asked", fmt.Sprint(got.Value))}
			}
		}
	}
	return nil
}

// scope says whom a reply that failed a check stops.
type scope int

const (
	nobody    scope = iota // it was the request's own doing, or no reply
	shorter                // requests of the rule for no longer lifetime: they fare no better
	wholeRule              // all requests of the rule
)

// scopeOf returns whom the failure concerns besides this order. Names that the caller's CSR
// may have brought in stop nobody else, or any caller could stop the rule.
func (o *Order) scopeOf(err error) scope {
	failed, ok := errors.AsType[*pki.CheckError](err)
	switch {
	case !ok:
		return nobody
	case failed.Check == "names" && o.odd():
		return nobody
	case failed.Check == "too-long" || failed.Check == "not-after" || failed.Check == "lifetime":
		return shorter
	}
	return wholeRule
}

// stale reports whether the failure may come from a certificate that the authority made for
// an earlier request of the same ID.
func stale(err error) bool {
	failed, ok := errors.AsType[*pki.CheckError](err)
	return ok && (failed.Check == "backdating" || failed.Check == "expired")
}

// backdating returns how much longer a leaf lives than was asked for, if that is because it
// was backdated. The authority's clock has no part in it.
func backdating(leaf *x509.Certificate, ttl time.Duration, sent time.Time) (extra time.Duration, ok bool) {
	extra = leaf.NotAfter.Sub(leaf.NotBefore) - ttl
	return extra, extra >= 0 && extra <= sent.Sub(leaf.NotBefore)+pki.MaxClockSkew
}
