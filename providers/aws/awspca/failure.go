package awspca

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// reasons are those of the errors that AWS documents for the calls that this package makes, of
// the service, of signatures and of the token service.
var reasons = map[string]ca.Reason{
	"InvalidArgsException": ca.Invalid, "InvalidArnException": ca.Invalid, "InvalidRequestException": ca.Invalid,
	"MalformedCSRException": ca.Invalid, "ResourceNotFoundException": ca.Invalid, "ValidationException": ca.Invalid, "ValidationError": ca.Invalid,
	// The order failed, as one with another CSR may not: the next try is a new order.
	"RequestFailedException": ca.Invalid,
	// The CA is disabled, expired or has no certificate yet.
	"InvalidStateException":      ca.Unavailable,
	"RequestInProgressException": ca.Unavailable, "IDPCommunicationError": ca.Unavailable, "ServiceUnavailable": ca.Unavailable,
	"LimitExceededException":           ca.RateLimited,
	"RequestAlreadyProcessedException": ca.Aborted, "ConcurrentModificationException": ca.Aborted,
	"AccessDenied": ca.Denied, "AccessDeniedException": ca.Denied, "NotAuthorized": ca.Denied, "OptInRequired": ca.Denied, "RegionDisabledException": ca.Denied,
	"ExpiredToken": ca.Unauthenticated, "ExpiredTokenException": ca.Unauthenticated, "InvalidIdentityToken": ca.Unauthenticated, "IDPRejectedClaim": ca.Unauthenticated,
	"UnrecognizedClientException": ca.Unauthenticated, "InvalidClientTokenId": ca.Unauthenticated, "MissingAuthenticationToken": ca.Unauthenticated,
	"MissingAuthenticationTokenException": ca.Unauthenticated, "RequestExpired": ca.Unauthenticated, "RequestTimeTooSkewed": ca.Unauthenticated,
	"SignatureDoesNotMatch": ca.Unauthenticated, "InvalidSignatureException": ca.Unauthenticated,
	"IncompleteSignature": ca.Unauthenticated, "IncompleteSignatureException": ca.Unauthenticated,
	"InternalFailure": ca.Internal, "InternalServerError": ca.Internal, "InternalServiceException": ca.Internal,
}

// failure maps the error of a call and names the CA in it.
func (c *CA) failure(ctx context.Context, err error, as caller) error {
	if gone(ctx) {
		return ctx.Err()
	}
	if own, ok := errors.AsType[*ca.Error](err); ok {
		return own
	}
	return refusal(c.arn.text, err, as.hidden())
}

// unsaid is the SDK's code for a reply that has none, as a proxy's.
const unsaid = "UnknownError"

// refusal returns the error of a call with its reason, and without the secrets.
func refusal(name string, err error, hidden []ca.Token) *ca.Error {
	if said, ok := errors.AsType[smithy.APIError](err); ok && said.ErrorCode() != unsaid {
		code := provider.CleanText(said.ErrorCode(), hidden...)
		out := ca.Errorf(reasonOf(said.ErrorCode(), statusOf(err)), "%s: %s: %s", name, code, textOf(said, hidden))
		out.RetryAfter = rest.RetryAfter(headerOf(err))
		return out
	}
	switch status := statusOf(err); {
	case ca.ReasonFor(err) == ca.Deadline:
		return ca.Errorf(ca.Deadline, "%s: no reply in time", name)
	case errors.Is(err, rest.ErrTooLong):
		return ca.Errorf(ca.Internal, "%s: the reply has more than %d bytes", name, maxReply)
	case status/100 == 2:
		return ca.Errorf(ca.Internal, "%s: the reply is malformed", name)
	case status != 0:
		reason := byStatus(status)
		if reason == ca.Invalid && status >= http.StatusBadRequest {
			reason = ca.Unavailable // a proxy's page: the service's own replies have a code
		}
		out := ca.Errorf(reason, "%s: it answered with %d", name, status)
		out.RetryAfter = rest.RetryAfter(headerOf(err))
		return out
	}
	return ca.Errorf(ca.Unavailable, "%s: %s", name, provider.CleanText(causeOf(err), hidden...))
}

// textOf returns the service's message. Its errors about signatures quote the request, whose
// headers have the session token.
func textOf(said smithy.APIError, hidden []ca.Token) string {
	if strings.Contains(said.ErrorCode(), "Signature") {
		return "the signature was not accepted: check the secret of the key, and this machine's clock"
	}
	return provider.CleanText(said.ErrorMessage(), hidden...)
}

func reasonOf(code string, status int) ca.Reason {
	if reason, ok := reasons[code]; ok {
		return reason
	}
	if _, throttled := retry.DefaultThrottleErrorCodes[code]; throttled {
		return ca.RateLimited
	}
	return byStatus(status)
}

func byStatus(status int) ca.Reason {
	switch {
	case status == http.StatusUnauthorized:
		return ca.Unauthenticated
	case status == http.StatusForbidden:
		return ca.Denied
	case status == http.StatusTooManyRequests:
		return ca.RateLimited
	case status == http.StatusInternalServerError:
		return ca.Internal
	case slices.Contains([]int{0, http.StatusRequestTimeout}, status), status >= 500:
		return ca.Unavailable
	}
	return ca.Invalid
}

func responseOf(err error) *smithyhttp.Response {
	if said, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && said.Response != nil && said.Response.Response != nil {
		return said.Response
	}
	return nil
}

func statusOf(err error) int {
	if reply := responseOf(err); reply != nil {
		return reply.StatusCode
	}
	return 0
}

func headerOf(err error) http.Header {
	if reply := responseOf(err); reply != nil {
		return reply.Header
	}
	return nil
}

// causeOf leaves out the SDK's own words, of which there are many.
func causeOf(err error) string {
	if sent, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return sent.Err.Error()
	}
	return err.Error()
}
