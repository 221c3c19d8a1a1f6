package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// ErrorDomain is the domain of the google.rpc.ErrorInfo that this protocol sends.
const ErrorDomain = "countersign.dev"

// maxRetryAfter bounds what a peer may ask for. The engine honours less still.
const maxRetryAfter = 24 * time.Hour

// row is one line of the error table.
type row struct {
	code   codes.Code
	reason ca.Reason
	// word is the reason in ErrorInfo. It is empty where another row speaks for
	// the reason: that row is what is sent, this one is only understood.
	word string
	// upstream is the reason where the status came from the authority's own gRPC
	// API and a provider passed it on: "failed precondition" there does not ask
	// our host for settings, nor does "unimplemented" mean that an ability of the
	// provider is missing.
	upstream ca.Reason
}

// table has a row for every gRPC code but OK, in their order.
func table() [16]row {
	return [...]row{
		{codes.Canceled, ca.Canceled, "CANCELED", ca.Unavailable},
		{codes.Unknown, ca.Unknown, "UNKNOWN", ca.Unknown},
		{codes.InvalidArgument, ca.Invalid, "INVALID", ca.Invalid},
		{codes.DeadlineExceeded, ca.Deadline, "DEADLINE", ca.Deadline},
		{codes.NotFound, ca.Invalid, "", ca.Invalid},
		{codes.AlreadyExists, ca.Aborted, "", ca.Aborted},
		{codes.PermissionDenied, ca.Denied, "DENIED", ca.Denied},
		{codes.ResourceExhausted, ca.RateLimited, "RATE_LIMITED", ca.RateLimited},
		{codes.FailedPrecondition, ca.NotConfigured, "NOT_CONFIGURED", ca.Invalid},
		{codes.Aborted, ca.Aborted, "ABORTED", ca.Aborted},
		{codes.OutOfRange, ca.Invalid, "", ca.Invalid},
		{codes.Unimplemented, ca.Unimplemented, "UNIMPLEMENTED", ca.Invalid},
		{codes.Internal, ca.Internal, "INTERNAL", ca.Internal},
		{codes.Unavailable, ca.Unavailable, "UNAVAILABLE", ca.Unavailable},
		{codes.DataLoss, ca.Internal, "", ca.Internal},
		{codes.Unauthenticated, ca.Unauthenticated, "UNAUTHENTICATED", ca.Unauthenticated},
	}
}

// rowOfCode answers for codes of a later gRPC as for Unknown.
func rowOfCode(code codes.Code) row {
	rows := table()
	if code < codes.Canceled || int(code) > len(rows) {
		code = codes.Unknown
	}
	return rows[code-1] //nolint:gosec // bounded above
}

func rowOfReason(reason ca.Reason) row {
	for _, r := range table() {
		if r.reason == reason && r.word != "" {
			return r
		}
	}
	return rowOfCode(codes.Unknown)
}

// ToStatus turns an error of an implementation into the gRPC status error that
// goes over the boundary: the code and the reason of the table, RetryInfo where
// the authority said when to come back, and the text made fit by [CleanText]. A
// gRPC status that the authority's own API answered goes by its code, as what
// that means to this protocol. nil stays nil.
func ToStatus(err error) error { return toStatus(err, "") }

func toStatus(err error, token ca.Token) error {
	if err == nil {
		return nil
	}
	sent := rowOfReason(reasonOf(err))
	st := status.New(sent.code, CleanText(messageOf(err), token))
	info := &errdetails.ErrorInfo{Domain: ErrorDomain, Reason: sent.word}
	var detailed *status.Status
	var failed error
	if after := retryAfterOf(err); after > 0 {
		detailed, failed = st.WithDetails(info, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	} else {
		detailed, failed = st.WithDetails(info)
	}
	if failed != nil {
		// The code alone says the same, only less.
		return st.Err()
	}
	return detailed.Err()
}

// reasonOf classifies what an author returned.
func reasonOf(err error) ca.Reason {
	if reason := ca.ReasonFor(err); reason != ca.Unknown {
		return reason
	}
	if _, classified := errors.AsType[*ca.Error](err); classified {
		return ca.Unknown
	}
	if st, ok := status.FromError(err); ok {
		return rowOfCode(st.Code()).upstream
	}
	return ca.Unknown
}

// retryAfterOf finds the authority's word also in the status of its own API.
func retryAfterOf(err error) time.Duration {
	if _, classified := errors.AsType[*ca.Error](err); classified {
		return ca.RetryAfter(err)
	}
	st, _ := status.FromError(err)
	return retryAfterIn(st)
}

// retryAfterIn reads RetryInfo, within bounds.
func retryAfterIn(st *status.Status) time.Duration {
	for _, detail := range st.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, min(retry.GetRetryDelay().AsDuration(), maxRetryAfter))
		}
	}
	return 0
}

// messageOf leaves out the reason that the other end will print again.
func messageOf(err error) string {
	e, ok := err.(*ca.Error) //nolint:errorlint // the wrapping text is wanted where there is one
	switch {
	case ok && e.Message != "":
		return e.Message
	case ok && e.Err != nil:
		return e.Err.Error()
	case ok:
		return ""
	}
	if st, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return st.GRPCStatus().Message()
	}
	return err.Error()
}

// FromStatus turns the error of a gRPC call into an [*ca.Error]. The code decides;
// an ErrorInfo of our domain decides where its reason has that very code, or where
// the code has no reason of its own. nil stays nil. A Deadline is
// [context.DeadlineExceeded] to errors.Is, a Canceled is [context.Canceled].
func FromStatus(err error) error { return fromStatus(err, "") }

func fromStatus(err error, token ca.Token) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*ca.Error](err); ok {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	out := &ca.Error{Reason: rowOfCode(st.Code()).reason, Message: CleanText(st.Message(), token), RetryAfter: retryAfterIn(st)}
	if tooLarge(st) {
		out.Reason = ca.Internal
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			out.Reason = reasonSaid(info, st.Code(), out.Reason)
		}
	}
	return out
}

// tooLarge tells whether gRPC itself refused a message for its size. It has no code
// of its own for that: ResourceExhausted would say that somebody has a quota.
func tooLarge(st *status.Status) bool {
	return st.Code() == codes.ResourceExhausted && len(st.Details()) == 0 && strings.Contains(st.Message(), "larger than max")
}

// reasonSaid returns the reason in info where it is consistent with the code. A
// contradiction goes by the code: that is what every other gRPC tool sees.
func reasonSaid(info *errdetails.ErrorInfo, code codes.Code, byCode ca.Reason) ca.Reason {
	if info.GetDomain() != ErrorDomain || info.GetReason() == "" {
		return byCode
	}
	for _, r := range table() {
		if r.word != info.GetReason() {
			continue
		}
		vague := code == codes.Unknown || rowOfCode(code).word == ""
		if r.code == code || vague {
			return r.reason
		}
	}
	return byCode
}

// stillWanted keeps a peer from ending a request by calling it canceled: while
// ctx goes on the caller is there, and the request is to be tried again.
func stillWanted(ctx context.Context, err error) error {
	e, ok := errors.AsType[*ca.Error](err)
	if !ok || e.Reason != ca.Canceled || ctx.Err() != nil {
		return err
	}
	return &ca.Error{Reason: ca.Unavailable, Message: "the call was cancelled on the provider's side: " + e.Message, RetryAfter: e.RetryAfter}
}

// FromUpstream turns the error of an authority's own gRPC API into the [*ca.Error]
// that a provider answers with: the reason by the code and what it means to this
// protocol, the authority's word on when to come back, and its text without token,
// made fit by [CleanText]. nil stays nil.
func FromUpstream(err error, token ca.Token) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	out := &ca.Error{Reason: rowOfCode(st.Code()).upstream, Message: CleanText(st.Message(), token), RetryAfter: retryAfterIn(st)}
	if tooLarge(st) {
		out.Reason = ca.Internal
	}
	return out
}
