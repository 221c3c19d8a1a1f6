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

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// ErrorDomain is the domain of the google.rpc.ErrorInfo that this protocol sends.
const ErrorDomain = "countersign.dev"

// maxRetryAfter bounds the delay that a peer may ask for. The engine accepts less.
const maxRetryAfter = 24 * time.Hour

// row is one line of the error table.
type row struct {
	code   codes.Code
	reason ca.Reason
	// word is the reason in ErrorInfo. It is empty in a row that is only received: another row
	// is sent for that reason.
	word string
	// upstream is the reason for a status of the authority's own gRPC API: there,
	// "failed precondition" does not ask the host for settings, and "unimplemented" does not
	// mean that the provider lacks an ability.
	upstream ca.Reason
}

// byCode has a row for every gRPC code except OK, in order: the reason of a bare code.
func byCode() [16]row {
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

// table adds the reasons that share the code of another one. A host that does not know such a
// reason goes by the code.
func table() []row {
	rows := byCode()
	return append(rows[:], row{codes.Unavailable, ca.Pending, "PENDING", ca.Unavailable})
}

// rowOfCode treats codes of a later gRPC as Unknown.
func rowOfCode(code codes.Code) row {
	rows := byCode()
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

// ToStatus converts an error of a provider to the gRPC status error that is sent: with the code
// and reason of the table, RetryInfo if there is a retry delay, and the text cleaned by
// [CleanText]. A gRPC status of the authority's own API is mapped as in [FromUpstream]. nil
// stays nil.
func ToStatus(err error) error { return toStatus(err, "") }

func toStatus(err error, token ca.Token) error {
	if err == nil {
		return nil
	}
	sent := rowOfReason(reasonOf(err))
	st := status.New(sent.code, CleanText(errno.Text(messageOf(err), err), token))
	info := &errdetails.ErrorInfo{Domain: ErrorDomain, Reason: sent.word}
	var detailed *status.Status
	var failed error
	if after := retryAfterOf(err); after > 0 {
		detailed, failed = st.WithDetails(info, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	} else {
		detailed, failed = st.WithDetails(info)
	}
	if failed != nil {
		// The code alone has to do.
		return st.Err()
	}
	return detailed.Err()
}

// reasonOf returns the reason of an author's error.
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

// retryAfterOf also finds the retry delay in a status of the authority's own API.
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

// messageOf returns the text without the reason, which the other side prints.
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
	// A type of the author's own that adds no text: the host adds the reason itself.
	if e, ok := errors.AsType[*ca.Error](err); ok && e.Error() == err.Error() {
		return messageOf(e)
	}
	return err.Error()
}

// FromStatus converts the error of a gRPC call to an [*ca.Error]. The code determines the
// reason; an ErrorInfo of [ErrorDomain] overrides it where its reason has the same code, or the
// code has no reason of its own. nil stays nil. To errors.Is, a Deadline is
// [context.DeadlineExceeded] and a Canceled is [context.Canceled].
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

// tooLarge reports whether gRPC itself refused a message for its size. It uses
// ResourceExhausted for that, which otherwise means a quota.
func tooLarge(st *status.Status) bool {
	return st.Code() == codes.ResourceExhausted && len(st.Details()) == 0 && strings.Contains(st.Message(), "larger than max")
}

// reasonSaid returns the reason in info if it is consistent with the code. Otherwise the code
// counts, as every other gRPC tool sees that.
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

// stillWanted turns Canceled into Unavailable while ctx is live: a peer cannot end a request
// that its caller still wants.
func stillWanted(ctx context.Context, err error) error {
	e, ok := errors.AsType[*ca.Error](err)
	if !ok || e.Reason != ca.Canceled || ctx.Err() != nil {
		return err
	}
	return &ca.Error{Reason: ca.Unavailable, Message: "the provider canceled the call: " + e.Message, RetryAfter: e.RetryAfter}
}

// FromUpstream converts an error of an authority's own gRPC API to an [*ca.Error]: with the
// reason that the code means to this protocol, the authority's retry delay, and its text
// cleaned by [CleanText] without token. nil stays nil.
func FromUpstream(err error, token ca.Token) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	out := &ca.Error{Reason: rowOfCode(st.Code()).upstream, Message: CleanText(st.Message(), token), RetryAfter: retryAfterIn(st)}
	switch {
	case tooLarge(st):
		out.Reason = ca.Internal
	case fromProxy(st):
		out.Reason = ca.Unavailable
	}
	return out
}

// fromProxy reports whether gRPC made the status of an HTTP status that does not concern the
// call: a 400 or 404 of a proxy whose upstream is not there yet.
func fromProxy(st *status.Status) bool {
	return (st.Code() == codes.Unimplemented || st.Code() == codes.Internal) &&
		strings.HasPrefix(st.Message(), "unexpected HTTP status code received from server: ")
}
