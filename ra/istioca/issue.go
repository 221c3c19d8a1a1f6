package istioca

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/text"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// issued is a certificate with what it was issued for.
type issued struct {
	ra.Certificate
	order *ra.Order
	// unrenewable is why the certificate of a listed machine cannot be renewed without a token.
	unrenewable error
}

// warn records that a certificate that was given out will not be renewed without a token.
func (s *Server) warn(ctx context.Context, who caller, got issued) {
	s.cfg.Log.Warn("certificate issued that cannot be renewed without a token", "caller", text.Clean(who.String()), "error", got.unrenewable)
	got.order.Note(ctx, got.Certificate, fmt.Errorf("it cannot be renewed without a token: %w", got.unrenewable))
}

// withheld records that the caller does not get it, and returns the reason.
func (i issued) withheld(ctx context.Context, f *fault) *fault {
	i.order.Withhold(ctx, i.Certificate, errors.New(f.inFull()))
	f.recorded = true
	return f
}

// issue gets the certificate that a caller asks for.
func (s *Server) issue(ctx context.Context, who caller, request *security.IstioCertificateRequest) (issued, *fault) {
	a, fault := s.read(request)
	if fault != nil {
		return issued{}, fault
	}
	got, fault := s.hold(ctx, who, a)
	if fault != nil {
		return got, fault.at(a.door)
	}
	if fault, got.unrenewable = s.enter(ctx, who, a, got.Certificate); fault != nil {
		return got, got.withheld(ctx, fault)
	}
	return got, nil
}

// prepare has a request decided, and checks what the policy does not.
func (s *Server) prepare(ctx context.Context, who caller, a asked) (*ra.Order, *fault) {
	subject := who.Subject
	if a.impersonated != "" {
		var fault *fault
		if subject, fault = s.impersonated(who, a.impersonated); fault != nil {
			return nil, fault
		}
	}
	o, err := s.cfg.Issuer.Prepare(ctx, ra.Request{
		Subject: subject, Holder: who.holder(a), WithinSubject: who.presented == nil, Door: a.door, CSR: a.csr, TTL: a.ttl,
	})
	if err != nil {
		return nil, afterIssue(err)
	}
	if a.impersonated != "" {
		if fault := s.mayImpersonate(ctx, who, o, a.impersonated); fault != nil {
			return nil, fault
		}
	}
	if who.presented != nil {
		if fault := s.mayRenew(o, who); fault != nil {
			return nil, fault
		}
	}
	if s.callers.Load().HoldNames {
		if fault := checkNames(o); fault != nil {
			return nil, fault
		}
	}
	return o, s.room(ctx, who, a, o)
}

// The waits between two tries of a call that is held. Each costs little: the engine answers
// from memory until it would ask the CA again.
const (
	soonest = time.Second
	latest  = 30 * time.Second
)

// errHeld is why the wait of a call ends.
var errHeld = errors.New("call exceeded the maximum hold time")

// attempt is the last answer of the issuer, and when it came.
type attempt struct {
	err error
	at  time.Time
}

// hold asks until there is a certificate or a final refusal, or until the call was held for
// long enough. What the policy decides otherwise meanwhile is prepared anew.
func (s *Server) hold(ctx context.Context, who caller, a asked) (issued, *fault) {
	held, cancel := context.WithTimeoutCause(ctx, s.cfg.Times.Hold, errHeld)
	defer cancel()
	defer context.AfterFunc(s.callers.Load().over, cancel)()
	var last attempt
	var o *ra.Order
	for {
		if o == nil {
			var fault *fault
			if o, fault = s.prepare(ctx, who, a); fault != nil {
				return issued{}, fault
			}
		}
		cert, err := s.cfg.Issuer.Issue(held, o)
		switch {
		case err == nil:
			return issued{Certificate: cert, order: o}, nil
		case !passes(err):
			return issued{}, afterIssue(err)
		case held.Err() == nil || last.err == nil: // otherwise it is only the end of the wait
			last = attempt{err, time.Now()}
		}
		if errors.Is(err, ca.ErrAborted) {
			o = nil
		}
		if !pause(held, ca.RetryAfter(err)) {
			return issued{}, s.overdue(ctx, held, last)
		}
	}
}

// passes reports whether the same request may fare better in a moment.
func passes(err error) bool {
	reason := ca.ReasonFor(err)
	return reason != ca.Denied && reason != ca.Invalid
}

// pause waits for as long as the issuer asks, and a little more, so that callers with the same
// answer do not come back together. It reports whether there is time left.
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
func (s *Server) overdue(ctx, held context.Context, last attempt) *fault {
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
	// The issuer has verified and encoded the chain, so it is only taken apart.
	parts := strings.SplitAfter(string(cert.Chain), "-----END CERTIFICATE-----\n")
	last := len(parts) - 1 // what follows the last line: nothing
	if last == 0 || parts[last] != "" || cert.Roots.Len() == 0 {
		return nil, faultf(Unavailable, codes.Unavailable, "the CA returned no roots; retry later")
	}
	parts[last] = string(cert.Roots.PEM())
	return &security.IstioCertificateResponse{CertChain: parts}, nil
}
