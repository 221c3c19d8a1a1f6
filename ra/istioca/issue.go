package istioca

import (
	"context"
	"encoding/pem"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	security "istio.io/api/security/v1alpha1"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// issue gets the certificate that a caller asks for.
func (s *Server) issue(ctx context.Context, who caller, request *security.IstioCertificateRequest) (ra.Certificate, *fault) {
	o, fault := s.read(request)
	if fault != nil {
		return ra.Certificate{}, fault
	}
	subject := who.Subject
	if o.impersonated != "" {
		if subject, fault = s.impersonate(ctx, who, o.impersonated, o.door); fault != nil {
			return ra.Certificate{}, fault
		}
	}
	if who.presented != nil {
		if fault = s.mayRenew(&o, who); fault != nil {
			return ra.Certificate{}, fault
		}
	}
	if fault := s.preview(o, subject); fault != nil {
		return ra.Certificate{}, fault
	}
	if fault := s.room(ctx, who, o); fault != nil {
		return ra.Certificate{}, fault
	}
	cert, fault := s.hold(ctx, ra.Request{Subject: subject, Door: o.door, CSR: o.csr, TTL: o.ttl})
	if fault != nil {
		return ra.Certificate{}, fault
	}
	if fault := s.review(o, cert); fault != nil {
		return ra.Certificate{}, fault
	}
	return cert, s.enter(ctx, who, o, cert)
}

// preview holds the CSR's names against the policy's before a certificate is asked for, if
// they are to be.
func (s *Server) preview(o order, subject ra.Subject) *fault {
	if !s.callers.Load().HoldNames {
		return nil
	}
	granted, fault := s.try(subject, o.door)
	if fault != nil {
		return fault
	}
	return checkNames(o.csr, granted)
}

// review looks once more at what was issued: the policy may have changed since it was tried.
func (s *Server) review(o order, cert ra.Certificate) *fault {
	if o.impersonated != "" && !isExactly(cert.Identity, o.impersonated) || s.callers.Load().HoldNames && checkNames(o.csr, cert.Identity) != nil {
		return faultf(Unavailable, codes.Unavailable, "the policy has changed meanwhile; retry")
	}
	return nil
}

// The waits between two tries of a call that is held. Each costs little: the engine answers
// from memory until it would ask the CA again.
const (
	soonest = time.Second
	latest  = 30 * time.Second
)

// errHeld is why the wait of a call ends.
var errHeld = errors.New("call exceeded the maximum hold time")

// told is what the issuer said last, and when.
type told struct {
	err error
	at  time.Time
}

// hold asks until there is a certificate or a final refusal, or until the call was held for
// long enough.
func (s *Server) hold(ctx context.Context, req ra.Request) (ra.Certificate, *fault) {
	held, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Hold, errHeld)
	defer cancel()
	defer context.AfterFunc(s.callers.Load().over, cancel)()
	var last told
	for {
		cert, err := s.cfg.Issuer.Issue(held, req)
		switch {
		case err == nil:
			return cert, nil
		case !passes(err):
			return cert, afterIssue(err)
		case held.Err() == nil || last.err == nil: // else it only says that the wait is over
			last = told{err, time.Now()}
		}
		if !pause(held, ca.RetryAfter(err)) {
			return cert, s.overdue(ctx, held, last)
		}
	}
}

// passes reports whether the same request may fare better in a moment.
func passes(err error) bool {
	reason := ca.ReasonFor(err)
	return reason != ca.Denied && reason != ca.Invalid
}

// pause waits for as long as the issuer asks, and a little more, so that those who were told
// the same do not come back together. It reports whether there is time left.
func pause(ctx context.Context, after time.Duration) bool {
	wait := min(max(after, soonest), latest)
	timer := time.NewTimer(wait + rand.N(wait/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// overdue is the fault of a call that ends while it is held.
func (s *Server) overdue(ctx, held context.Context, last told) *fault {
	if ctx.Err() != nil || !errors.Is(context.Cause(held), errHeld) {
		return s.goneOrEnding(ctx)
	}
	f := afterIssue(last.err)
	if f.after > 0 {
		f.after = max(f.after-time.Since(last.at), soonest)
	}
	return f
}

// replyOf returns the certificate as clients read it: the leaf and each intermediate an
// element, then all roots in one.
func replyOf(cert ra.Certificate) (*security.IstioCertificateResponse, *fault) {
	reply := &security.IstioCertificateResponse{}
	// The issuer has verified them, so they are only taken apart.
	for block, err := range pki.Blocks(cert.Chain) {
		if err == nil {
			reply.CertChain = append(reply.CertChain, string(pem.EncodeToMemory(block)))
		}
	}
	if len(reply.CertChain) == 0 || cert.Roots.Len() == 0 {
		return nil, faultf(Unavailable, codes.Unavailable, "the CA returned no roots; retry later")
	}
	reply.CertChain = append(reply.CertChain, string(cert.Roots.PEM()))
	return reply, nil
}
