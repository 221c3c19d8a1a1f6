package istioca

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/internal/strangers"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Result is how a call ended, one word that fits a metric.
type Result string

// The results.
const (
	Issued          Result = "issued"
	Renewed         Result = "renewed"     // issued to a certificate that a machine presented
	Unrenewable     Result = "unrenewable" // issued to a token of a listed machine, while the record of renewals was full
	NotReady        Result = "not-ready"
	Unauthenticated Result = "unauthenticated"
	CannotVerify    Result = "cannot-verify" // the caller, or the account that it asks for
	OverLimit       Result = "limit"
	OverOwnLimit    Result = "own-limit" // of one address or one caller
	Malformed       Result = "malformed"
	Denied          Result = "denied"
	Copied          Result = "copied" // denied: a machine's certificate is held by two
	RateLimited     Result = "rate-limited"
	Unavailable     Result = "unavailable"
	Gone            Result = "gone" // the client went away
)

// fault is why a call has no certificate: what its client sees, and what only the log has.
type fault struct {
	result  Result
	code    codes.Code
	message string
	after   time.Duration

	cause    error
	token    ca.Token // which the cause must not show
	who      *caller
	door     string // that it came through, once that is known
	recorded bool   // by the issuer
}

func faultf(result Result, code codes.Code, format string, args ...any) *fault {
	return &fault{result: result, code: code, message: text.Clean(fmt.Sprintf(format, args...))}
}

func (f *fault) because(err error) *fault { f.cause = err; return f }
func (f *fault) of(who caller) *fault     { f.who = &who; return f }
func (f *fault) at(door string) *fault    { f.door = door; return f }

// status is what the client sees.
func (f *fault) status() error {
	st := status.New(f.code, f.message)
	if f.after <= 0 {
		return st.Err()
	}
	detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.after)})
	if err != nil {
		return st.Err() // the code alone has to do
	}
	return detailed.Err()
}

// logFault logs why a call was refused.
func (s *Server) logFault(ctx context.Context, f *fault) {
	args := []any{"reason", string(f.result), "told", f.message}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		args = append(args, "peer", p.Addr.String())
	}
	if f.who != nil {
		args = append(args, "caller", text.Clean(f.who.String()))
	}
	if f.cause != nil {
		args = append(args, "error", reasons(f.cause, f.token))
	}
	level := slog.LevelWarn
	if f.result == Gone {
		level = slog.LevelDebug
	}
	s.cfg.Log.Log(ctx, level, "certificate not issued", args...)
}

// reasons returns what to log about an error.
func reasons(err error, token ca.Token) any {
	if known, ok := errors.AsType[*authn.UnknownCallerError](err); ok {
		return known // its LogValue lists all reasons, sanitized
	}
	return text.Redact(err.Error(), token)
}

// limitOf returns which limit it was.
func limitOf(full error) Result {
	if errors.Is(full, strangers.ErrFullForOne) {
		return OverOwnLimit
	}
	return OverLimit
}

// asReceived is for a message that gRPC does not take; gRPC itself reports one that is too
// large to the client.
func asReceived(err error) *fault {
	st := status.Convert(err)
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return faultf(Gone, st.Code(), "the client went away")
	case codes.ResourceExhausted:
		return faultf(Malformed, codes.ResourceExhausted, "the request is too large").because(err)
	}
	return faultf(Malformed, codes.InvalidArgument, "the request is not one message of this API").because(err)
}

// afterIssue is what an error of the issuer means.
func afterIssue(err error) *fault {
	f := ofIssuer(err)
	f.recorded = true
	return f
}

// ofIssuer shows a client only the text of the issuer's own refusals: a CA's may have details that are
// not for the client.
func ofIssuer(err error) *fault {
	reason, own := ca.ReasonFor(err), ra.Refused(err)
	switch {
	case own && reason == ca.Invalid:
		return faultf(Malformed, codes.InvalidArgument, "%s", sentence(err)).because(err)
	case own:
		return faultf(Denied, codes.PermissionDenied, "%s", sentence(err)).because(err)
	case reason == ca.Denied || reason == ca.Invalid:
		return faultf(Denied, codes.PermissionDenied, "the certificate authority refuses the request").because(err)
	case reason == ca.RateLimited:
		f := faultf(RateLimited, codes.ResourceExhausted, "too many certificates are asked for; retry later").because(err)
		f.after = ca.RetryAfter(err)
		return f
	}
	what := "the certificate authority cannot sign now; retry later"
	if reason == ca.Pending {
		what = "the certificate authority has not decided on the request yet; retry later"
	}
	f := faultf(Unavailable, codes.Unavailable, "%s", what).because(err)
	f.after = ca.RetryAfter(err)
	return f
}

// sentence is the error without its reason, which is in the code.
func sentence(err error) string {
	return strings.TrimPrefix(err.Error(), ca.ReasonFor(err).String()+": ")
}

// goneOrEnding is the fault of a call whose context ended.
func (s *Server) goneOrEnding(ctx context.Context) *fault {
	if ctx.Err() != nil {
		return faultf(Gone, status.FromContextError(ctx.Err()).Code(), "the client went away")
	}
	if s.ending.Err() == nil {
		return changed()
	}
	return faultf(Unavailable, codes.Unavailable, "the server is shutting down; reconnect")
}
