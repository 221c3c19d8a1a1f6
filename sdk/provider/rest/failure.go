package rest

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Reason maps an HTTP status other than 2xx (RFC 9110, section 15) to a reason of package
// ca: 401 to [ca.Unauthenticated], 403 to [ca.Denied], 409 to [ca.Aborted], 425 and 429 to
// [ca.RateLimited], 500 to [ca.Internal], 408 and all other 5xx to [ca.Unavailable], and
// everything else, redirects included, to [ca.Invalid].
func Reason(status int) ca.Reason { return endpoint.Reason(status) }

// failure returns the error that a reply other than 2xx stands for.
func (c *Client) failure(reply endpoint.Reply, call Call) error {
	status := reply.Status
	reason := Reason(status)
	if c.config.Reason != nil {
		if other, ok := c.config.Reason(status, reply.Body); ok {
			reason = other
		}
	}
	said := ""
	if c.config.Failure != nil {
		said = text.Redact(c.config.Failure(reply.Body), call.Hide...)
	}
	return endpoint.Refusal{Reason: reason, Host: c.Host(), Call: call.name(), Status: status, Header: reply.Header, Said: said}.Error()
}

// unanswered returns the error of a call without a usable reply.
func (c *Client) unanswered(err error, call Call) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ca.Errorf(ca.ReasonFor(err), "%s did not answer %s in time", c.Host(), call.name())
	case errors.Is(err, endpoint.ErrTooLong):
		return ca.Errorf(ca.Internal, "%s returned more than %d bytes", c.Host(), maxReply)
	}
	what := "cannot be reached"
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		what = "is not trusted"
	}
	return ca.Errorf(ca.Unavailable, "%s %s: %s", c.Host(), what, text.Redact(err.Error(), call.Hide...))
}
