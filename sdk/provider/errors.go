package provider

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Each of these functions says what an error means to the host, which then does as
// the contract's table has it (package ca). The text is a sentence for the operator,
// without a key or a token. nil stays nil.

// Invalid says: the request cannot be signed as it is. The attempt ends.
func Invalid(err error) error { return because(ca.Invalid, err) }

// Denied says: the caller may not have what it asked for. The attempt ends.
func Denied(err error) error { return because(ca.Denied, err) }

// Unauthenticated says: the token or client certificate was not accepted. The host reads
// the token again and tries once more.
func Unauthenticated(err error) error { return because(ca.Unauthenticated, err) }

// RateLimited says: too many requests, or a quota is used up. The host waits; say until
// when by [RetryAfter] if the authority did.
func RateLimited(err error) error { return because(ca.RateLimited, err) }

// Unavailable says: the authority cannot be reached or is not ready. The host waits.
func Unavailable(err error) error { return because(ca.Unavailable, err) }

// Aborted says: a conflict with another request. The host waits.
func Aborted(err error) error { return because(ca.Aborted, err) }

// Internal says: the authority or this provider failed. The host waits.
func Internal(err error) error { return because(ca.Internal, err) }

// RetryAfter adds the authority's own word on when to come back. An error that no
// function above has classified is a [RateLimited] then.
func RetryAfter(after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	e, classified := errors.AsType[*ca.Error](err)
	if !classified {
		return &Error{Reason: ca.RateLimited, Message: err.Error(), RetryAfter: after, Err: err}
	}
	return &Error{Reason: e.Reason, Message: messageOf(err), RetryAfter: after, Err: err}
}

// Errorf is one of the functions above with the text beside it, as in
// Errorf(Denied, "no entry for %s", name). It may wrap a cause with %w.
func Errorf(as func(error) error, format string, args ...any) error {
	return as(ca.Errorf(ca.Unknown, format, args...))
}

// because gives err a reason, and keeps what an earlier one said of when to come back.
func because(reason Reason, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Reason: reason, Message: messageOf(err), RetryAfter: ca.RetryAfter(err), Err: err}
}

// messageOf leaves out the reason that another will print again.
func messageOf(err error) string {
	if e, ok := err.(*Error); ok && e.Message != "" { //nolint:errorlint // the wrapping text is wanted where there is one
		return e.Message
	}
	return err.Error()
}
