package rest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Reason maps an HTTP status other than 2xx (RFC 9110, section 15) to a reason of package
// ca: 401 to [ca.Unauthenticated], 403 to [ca.Denied], 409 to [ca.Aborted], 425 and 429 to
// [ca.RateLimited], 500 to [ca.Internal], 408 and all other 5xx to [ca.Unavailable], and
// everything else, redirects included, to [ca.Invalid]. 202 is [ca.Pending], for an authority
// that accepts a request before it decides; a [Client] returns it as a reply. A [Client] maps a 4xx to that only if
// the reply is the authority's own: see [Config.Own].
func Reason(status int) ca.Reason { return endpoint.Reason(status) }

// ErrForeign is in the error of a reply with a 4xx that is not the authority's own: a proxy
// returns 404 until its upstream is there.
var ErrForeign = errors.New("a proxy or another server answered in place of the authority")

// failure returns the error that a reply other than 2xx stands for.
func (c *Client) failure(reply endpoint.Reply, call Call) error {
	refusal := endpoint.Refusal{Host: c.Host(), Call: call.name(), Status: reply.Status, Header: reply.Header}
	var foreign bool
	if refusal.Reason, foreign = c.reason(reply.Status, reply.Body); foreign {
		refusal.Said = ErrForeign.Error()
		failed := refusal.Error()
		failed.Err = ErrForeign
		return failed
	}
	if c.config.Failure != nil {
		refusal.Said = text.Redact(c.config.Failure(reply.Body), call.Hide...)
	}
	return refusal.Error()
}

// reason returns the reason of a reply other than 2xx. A status that calls the request wrong
// counts only in the authority's own form.
func (c *Client) reason(status int, body []byte) (reason ca.Reason, foreign bool) {
	if c.config.Reason != nil {
		if reason, ok := c.config.Reason(status, body); ok {
			return reason, false
		}
	}
	reason = Reason(status)
	if reason == ca.Invalid && status >= http.StatusBadRequest && !c.config.Own(status, body) {
		return ca.Unavailable, true
	}
	return reason, false
}

// isObject reports whether a body is a JSON object, as an API's errors are.
func isObject(_ int, body []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(body, &object) == nil && object != nil
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
	return ca.Errorf(ca.Unavailable, "%s %s: %s%s", c.Host(), what, text.Redact(err.Error(), call.Hide...), handshakeAdvice(err))
}

// handshakeAdvice says what to change if a handshake fails.
func handshakeAdvice(err error) string {
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return "; set root_file to the root of the server's certificate"
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return "; the server does not speak TLS there: check the port"
	}
	return ""
}
