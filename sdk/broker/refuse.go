package broker

import (
	"context"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Reason is why a reference is refused, in the words of the standard's ErrorInfo (SPIFFE Broker API,
// section 5).
type Reason string

// The reasons of the standard.
const (
	ReferenceInvalid    Reason = "WORKLOAD_REFERENCE_INVALID"
	WorkloadNotFound    Reason = "WORKLOAD_NOT_FOUND"
	WorkloadNotEntitled Reason = "WORKLOAD_NOT_ENTITLED"
)

// errorDomain is that of the standard's ErrorInfo.
const errorDomain = "spiffe.io"

var codesOf = map[Reason]codes.Code{
	ReferenceInvalid: codes.InvalidArgument, WorkloadNotFound: codes.NotFound, WorkloadNotEntitled: codes.PermissionDenied,
}

// Refuse returns the status error for a reference. Its text reaches the broker.
func Refuse(reason Reason, format string, args ...any) error {
	st := status.New(codesOf[reason], text.Clean(fmt.Sprintf(format, args...)))
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: string(reason)})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}

// statusOf returns the status of an error of a Resolver or of Sessions. What is not meant for the broker
// stays in the log.
func statusOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if ca.ReasonFor(err) == ca.RateLimited {
		return status.Error(codes.ResourceExhausted, text.Clean(err.Error()))
	}
	return status.Error(codes.Unavailable, "the workload cannot be resolved at the moment; try again")
}

// outcomeOf returns what a status error counts as.
func outcomeOf(err error) Outcome {
	switch status.Code(err) {
	case codes.OK:
		return Granted
	case codes.InvalidArgument:
		return Invalid
	case codes.NotFound:
		return NotFound
	case codes.PermissionDenied:
		return NotEntitled
	case codes.ResourceExhausted:
		return Limited
	}
	return Unavailable
}
