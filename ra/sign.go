package ra

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func (t *try) run(ctx context.Context) error {
	if err := t.engine.audit.ready(ctx, t.engine.cfg.Now()); err != nil {
		return err // a certificate that could not be given out
	}
	if err := t.engine.mayAsk(t.order); err != nil { // what was not known when it was put in line
		return err
	}
	if err := t.able(ctx); err != nil {
		t.failed(ctx, err)
		return err
	}
	if err := t.waitForRoots(ctx); err != nil {
		return err
	}
	err := t.once(ctx, "")
	if err != nil && t.worthAnother(err) {
		t.discarded(ctx, err)
		t.signed = !stale(err) // a repeat's certificate was paid for by its first request
		err = t.once(ctx, t.engine.cfg.Now().String())
	}
	if err == nil {
		t.cert = t.certificate()
		err = t.engine.mayGive(t.order, t.cert)
	}
	if err == nil {
		err = t.engine.wanted(t.order)
	}
	if err != nil {
		t.failed(ctx, err)
		return err
	}
	if err := t.auditIssued(ctx); err != nil {
		return err
	}
	if err := t.engine.wanted(t.order); err != nil { // the write may have taken seconds
		t.failed(ctx, err)
		return err
	}
	t.delivered(t.chain, t.roots, t.order.door.FollowsRoots)
	return nil
}

// able refuses what the authority cannot certify: the names of the request instead of the
// CSR's.
func (t *try) able(ctx context.Context) error {
	if !t.order.odd() && !t.order.nameless() {
		return nil
	}
	_, err := outside(ctx, t, "", t.certifies)
	switch {
	case err == nil:
		return nil
	case ca.ActionFor(err) != ca.Missing:
		return fmt.Errorf("authority %q: %w", t.conf.Name, err)
	case t.order.door.NoNames:
		return ca.Errorf(ca.NotConfigured, "authority %q signs only what a CSR names, and the door %q has CSRs without names", t.conf.Name, t.order.door.Name)
	}
	return ca.Errorf(ca.Invalid, "authority %q signs what the CSR names, and that is not what is granted: %.256s", t.conf.Name, t.order.decision.Identity)
}

// worthAnother reports whether the very same order may succeed at once: the reply was for an
// earlier one of the same ID, or was backdated by more than was known.
func (t *try) worthAnother(err error) bool {
	failed, ok := errors.AsType[*pki.CheckError](err)
	return stale(err) || ok && failed.Check == "too-long" && t.lifetime() < t.ttl
}

// once asks for the certificate, with another token if the first is rejected.
func (t *try) once(ctx context.Context, again string) error {
	err := t.ask(ctx, again)
	if err != nil && ca.ActionFor(err) == ca.RefreshToken && t.conf.Token != nil {
		rejected := t.bearer.Token
		t.conf.TokenRejected(rejected)
		if err = redact.Error(t.ask(ctx, again), rejected); err == nil {
			t.call = nil
		}
	}
	if t.call = err; err != nil {
		return fmt.Errorf("authority %q: %w", t.conf.Name, err)
	}
	t.signed = true
	return t.verify()
}

func (t *try) ask(ctx context.Context, again string) (err error) {
	t.called = true
	if t.bearer, err = t.token(ctx); err != nil {
		return err
	}
	t.ttl, t.sent = t.lifetime(), t.engine.cfg.Now()
	t.of = cmp.Or(t.of, t.sent)
	request := t.order.sign(t.of, t.ttl, again, t.bearer.Token)
	t.id = request.ID
	t.reply, err = outside(ctx, t, "", func(ctx context.Context) (ca.Certificate, error) {
		return t.conf.Client.CSRSign(ctx, request)
	})
	return redact.Error(err, t.bearer.Token)
}

func (t *try) token(ctx context.Context) (ca.Bearer, error) {
	if t.conf.Token == nil {
		return ca.Bearer{}, nil
	}
	return outside(ctx, t, "read the token: ", t.conf.Token)
}

// verify checks the reply against the roots that are everywhere. One below a root that is
// not yet is held back.
func (t *try) verify() error {
	now := t.engine.cfg.Now()
	trusted, all, err := t.takeRoots(t.reply.Roots, t.sent)
	if err != nil {
		return err
	}
	t.roots = all
	t.chain, err = t.below(trusted, now)
	t.learnBackdating()
	if err == nil || trusted.Equal(all) {
		return err
	}
	early, laterErr := t.below(all, now)
	if laterErr != nil {
		return err
	}
	if err := t.holdBack(early.Root); err != nil {
		return err
	}
	t.chain = early
	return nil
}

// learnBackdating remembers by how much the authority backdates, also from a reply that was
// refused for it.
func (t *try) learnBackdating() {
	leaf := t.leaf()
	if leaf == nil || !pki.SameKey(leaf.PublicKey, t.order.csr.PublicKey) {
		return
	}
	if extra, ok := backdating(leaf, t.ttl, t.sent); ok {
		t.backdates(extra)
	}
}

// leaf returns the leaf of the reply, verified or not; nil if there is none.
func (t *try) leaf() *x509.Certificate {
	if t.chain != nil {
		return t.chain.Leaf
	}
	certs, err := pki.ParseCertificates(t.reply.Chain)
	if err != nil {
		return nil
	}
	return certs[0]
}

func (t *try) certificate() Certificate {
	leaf := t.chain.Leaf
	return Certificate{
		Chain: t.chain.PEM, Roots: t.roots, Identity: t.chain.Identity,
		Serial: leaf.SerialNumber.Text(16), Fingerprint: pki.Fingerprint(leaf),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Ends: t.chain.Ends,
		Rule: t.order.decision.Rule, Authority: t.conf.Name, RequestID: t.id,
	}
}

// line is what all audit lines of a try say.
func (t *try) line() auditLine {
	o := t.order
	subject := o.Subject
	return auditLine{
		Time: t.engine.cfg.Now(), Subject: &subject, Door: o.Door, Rule: o.decision.Rule, Authority: t.conf.Name,
		Signer: text.Redact(t.reply.Signer, t.bearer.Token), RequestID: t.id, Object: text.Clean(o.Object),
		Names: o.decision.Identity.Names(), KeyType: keyType(o.csr.PublicKey),
	}
}

// auditIssued writes the line without which nothing is given out.
func (t *try) auditIssued(ctx context.Context) error {
	line := t.line()
	line.Event, line.Serial, line.Fingerprint = eventIssued, t.cert.Serial, t.cert.Fingerprint
	line.Root, line.NotBefore, line.NotAfter = pki.Fingerprint(t.chain.Root), &t.cert.NotBefore, &t.cert.NotAfter
	return t.engine.audit.write(ctx, line)
}

// failed audits what came of a call that brought nothing to give out.
func (t *try) failed(ctx context.Context, err error) {
	if t.left {
		return // takeOver has
	}
	t.engine.cfg.Log.Warn("no certificate for a request", "authority", t.conf.Name,
		"rule", t.order.decision.Rule, "subject", t.order.Subject.String(), "error", text.Clean(err.Error()))
	if t.called && t.call == nil {
		t.discarded(ctx, err)
		return
	}
	if ca.ActionFor(err) == ca.EndAttempt {
		for range t.engine.waiting(t.flight) { // each gets the refusal
			t.engine.refusals.refuse(ctx, t.line(), ca.ReasonFor(err), err)
		}
	}
}

// discarded audits a certificate that the authority signed and no caller gets. There is nothing
// to withhold if that fails.
func (t *try) discarded(ctx context.Context, err error) {
	line := t.line()
	line.Event, line.Reason, line.Text = eventDiscarded, result(err), text.Clean(err.Error())
	if leaf := t.leaf(); leaf != nil {
		line.Serial, line.Fingerprint = leaf.SerialNumber.Text(16), pki.Fingerprint(leaf)
		line.NotBefore, line.NotAfter = &leaf.NotBefore, &leaf.NotAfter
	}
	_ = t.engine.audit.write(ctx, line)
}

// result is a word for metrics.
func result(err error) string {
	if err == nil {
		return resultIssued
	}
	if _, bad := errors.AsType[*pki.CheckError](err); bad {
		return resultCheck
	}
	return ca.ReasonFor(err).String()
}

// toCaller returns the error as callers get it. A reply that failed a check is the
// authority's fault, and no refusal.
func toCaller(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*ca.Error](err); ok {
		return err
	}
	if _, bad := errors.AsType[*pki.CheckError](err); bad {
		return &ca.Error{Reason: ca.Unavailable, Message: text.Clean(err.Error()), RetryAfter: time.Minute, Err: err}
	}
	return &ca.Error{Reason: ca.ReasonFor(err), Message: text.Clean(err.Error()), Err: err}
}
