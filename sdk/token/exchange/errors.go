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
		return c.errorf(ca.Canceled, "nobody waits for it any more")
	case errors.Is(err, context.DeadlineExceeded):
		return c.errorf(ca.Deadline, "no answer within %s", c.config.Timeout)
	}
	return c.errorf(ca.Unavailable, "%s", c.clean(err.Error()))
}

// refusal returns the error for a reply other than 200 (RFC 6749, section 5.2).
func (c *call) refusal(r endpoint.Reply) error {
	var said struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(r.Body, &said) // otherwise only the status counts
	text := fmt.Sprintf("it answered with %d", r.Status)
	if said.Error != "" {
		text += ", " + c.clean(said.Error)
	}
	if said.Description != "" {
		text += ": " + c.clean(said.Description)
	}
	err := c.errorf(reasonOf(r.Status, said.Error), "%s", text)
	if ca.ActionFor(err) == ca.Wait {
		err.RetryAfter = endpoint.RetryAfter(r.Header.Get("Retry-After"), time.Now())
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
