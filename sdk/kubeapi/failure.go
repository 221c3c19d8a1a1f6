package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// StatusError is a reply other than 2xx, or the error that ends a watch.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Message is that of the API server's Status, clean; empty if a proxy answered.
	Message string

	err *ca.Error
}

// Error returns the server, the call, the status and the message.
func (r *StatusError) Error() string { return r.err.Error() }

// Unwrap returns the same as an error of package ca, with its reason and the wait that the API
// server asked for.
func (r *StatusError) Unwrap() error { return r.err }

// Answered reports whether err is a [*StatusError] with that status.
func Answered(err error, status int) bool {
	r, ok := errors.AsType[*StatusError](err)
	return ok && r.Status == status
}

// said has the fields of a metav1.Status that are used.
type said struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details struct {
		Seconds int64 `json:"retryAfterSeconds"`
	} `json:"details"`
}

// maxSeconds is a day, which bounds what a server asks to wait.
const maxSeconds = 24 * 60 * 60

// refused returns the error of a reply, and makes a caching source of tokens fetch a new one for
// the next call if this one was rejected.
func (c *Client) refused(r Call, own ca.Token, reply endpoint.Reply) error {
	if source, ok := c.cfg.Token.(interface{ Rejected(ca.Token) }); ok && reply.Status == http.StatusUnauthorized {
		source.Rejected(own)
	}
	var status said
	if json.Unmarshal(reply.Body, &status) != nil {
		status = said{} // a proxy's page
	}
	return c.refusal(r, reply.Status, reply.Header, status)
}

func (c *Client) refusal(r Call, code int, header http.Header, status said) *StatusError {
	message := ""
	if status.Message != "" {
		message = text.Redact(status.Message, r.Hide...)
	}
	failed := endpoint.Refusal{
		Reason: reasonFor(code, status.Message), Host: c.host, Call: r.String(), Status: code, Header: header, Said: message,
	}.Error()
	if failed.RetryAfter == 0 {
		failed.RetryAfter = time.Duration(min(max(status.Details.Seconds, 0), maxSeconds)) * time.Second
	}
	return &StatusError{code, message, failed}
}

// reasonFor maps a status of the API server. What is not there yet may come: the types of a
// CustomResourceDefinition, a namespace, an object.
func reasonFor(status int, message string) ca.Reason {
	switch {
	case status == http.StatusNotFound, status == http.StatusGone:
		return ca.Unavailable
	case status == http.StatusForbidden && strings.Contains(message, "exceeded quota"):
		return ca.RateLimited // a ResourceQuota: objects that are done make room
	}
	reason := endpoint.Reason(status)
	if reason == ca.Invalid && status >= http.StatusBadRequest && message == "" {
		return ca.Unavailable // a proxy's page
	}
	return reason
}

// unanswered returns the error of a call without a usable reply. ctx is the caller's.
func (c *Client) unanswered(ctx context.Context, r Call, err error) error {
	switch {
	case ctx.Err() != nil:
		return ca.Errorf(ca.ReasonFor(ctx.Err()), "%s did not answer %s in time", c.host, r)
	case errors.Is(err, endpoint.ErrTooLong):
		return &ca.Error{Reason: ca.Internal, Message: c.host + " answered " + r.String() + ": " + text.Redact(err.Error(), r.Hide...), Err: endpoint.ErrTooLong}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ca.Errorf(ca.Unavailable, "%s did not answer %s within %s", c.host, r, callTimeout)
	}
	return ca.Errorf(ca.Unavailable, "%s cannot be reached: %s", c.host, text.Redact(err.Error(), r.Hide...))
}
