package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func (c *call) errorf(reason ca.Reason, format string, args ...any) *ca.Error {
	return ca.Errorf(reason, "token exchange at %s: %s", c.host, fmt.Sprintf(format, args...))
}

// unanswered returns the error of a call that got no usable reply.
func (c *call) unanswered(err error) error {
	switch {
	case errors.Is(err, endpoint.ErrRedirect):
		return c.errorf(ca.Denied, "%s", err)
	case errors.Is(err, endpoint.ErrTooLong):
		return c.errorf(ca.Internal, "it answered with more than %d bytes", maxReply)
	case errors.Is(err, context.Canceled):
		return c.errorf(ca.Canceled, "no caller waits for it any more")
	case errors.Is(err, context.DeadlineExceeded):
		return c.errorf(ca.Deadline, "no answer within %s", c.config.Timeout)
	}
	return c.errorf(ca.Unavailable, "%s", c.clean(err.Error()))
}

// Refusal returns the error for a reply of a token service other than 200: its status, and
// its message in the form of RFC 6749, section 5.2, or of Google's APIs. A status that is
// about a credential is [ca.Unauthenticated], another 4xx [ca.Denied]; the rest may be
// retried, after its Retry-After. The hidden tokens are replaced in its text.
func Refusal(host string, status int, header http.Header, body []byte, hidden ...ca.Token) *ca.Error {
	var said struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
	}
	_ = json.Unmarshal(body, &said) // otherwise only the status counts
	var word string
	if json.Unmarshal(said.Error, &word) != nil {
		var google struct{ Status, Message string }
		_ = json.Unmarshal(said.Error, &google)
		word, said.Description = google.Status, google.Message
	}
	message := fmt.Sprintf("token exchange at %s: it answered with %d", host, status)
	if word != "" {
		message += ", " + text.Redact(word, hidden...)
	}
	if said.Description != "" {
		message += ": " + text.Redact(said.Description, hidden...)
	}
	err := ca.Errorf(reasonOf(status, word), "%s", message)
	if ca.ActionFor(err) == ca.Wait {
		err.RetryAfter = endpoint.RetryAfter(header.Get("Retry-After"), time.Now())
	}
	return err
}

// reasonOf maps the HTTP status and the OAuth error code to a reason.
func reasonOf(status int, said string) ca.Reason {
	switch {
	case status == http.StatusTooManyRequests:
		return ca.RateLimited
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return ca.Deadline
	case status == http.StatusUnauthorized, status == http.StatusBadRequest && slices.Contains([]string{"invalid_client", "invalid_grant"}, said):
		return ca.Unauthenticated
	case status >= 400 && status < 500:
		return ca.Denied
	case status >= 500 && status != http.StatusInternalServerError:
		return ca.Unavailable
	}
	return ca.Internal
}
