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
	longer := t.reply.Facts.FixedLifetime
	if t.conf.AcceptLongerTTL != nil {
		longer = *t.conf.AcceptLongerTTL
	}
	check := pki.Check{
		Key: o.csr.PublicKey, Identity: o.decision.Identity, Names: pki.ExactNames, RequestID: t.id,
		Roots: roots, Now: now, AskedUntil: now.Add(t.ttl), AcceptLonger: longer && !o.door.strict(),
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
	most := o.most()
	if check.AcceptLonger {
		most = forAll
	}
	return verified, o.door.check(leaf, most, t.sent)
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

// scope is what a reply that failed a check stops.
type scope int

const (
	caller    scope = iota // who asked, whose history has it wait
	shorter                // requests of the rule for no longer lifetime: they fare no better
	wholeRule              // all requests of the rule
)

// scopes have for each check of a reply who can cause its failure, and so what it stops. What the
// caller's own number, names or CSR can fail stops the caller alone: no tenant stops another.
var scopes = map[string]func(*try) scope{
	"format": ofRule, "key": ofRule, "ca": ofRule, "usage": ofRule, // Prepare refuses CSRs that ask for others
	"roots": ofRule, "chain": ofRule, "not-before": ofRule, "backdating": ofRule,
	"not-after": ofShorter, "too-long": ofShorter, "lifetime": ofShorter,
	"names": (*try).ofNames, "expired": (*try).ofExpiry,
}

func ofRule(*try) scope    { return wholeRule }
func ofShorter(*try) scope { return shorter }

// ofNames is for a leaf with other names: those that the caller's CSR may have brought in, or that
// the authority makes of names that the caller chose, or its tenant for the rule's templates.
func (t *try) ofNames() scope {
	o := t.order
	if o.odd() || len(o.DNSNames) > 0 || o.NamesOfCSR || o.decision.chosen {
		return caller
	}
	return wholeRule
}

// ofExpiry is for a leaf that had ended when it came: an answer may take longer than the lifetime
// that the caller asked for. Only what had ended before it was asked for is the authority's doing,
// such as by a clock that is behind, with which a longer lifetime may be long enough.
func (t *try) ofExpiry() scope {
	if leaf := t.leaf(); leaf != nil && leaf.NotAfter.Before(t.sent) {
		return shorter
	}
	return caller
}

// scopeOf returns what the failure stops besides this order.
func (t *try) scopeOf(err error) scope {
	failed, ok := errors.AsType[*pki.CheckError](err)
	if !ok {
		return caller
	}
	if of := scopes[failed.Check]; of != nil {
		return of(t)
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
