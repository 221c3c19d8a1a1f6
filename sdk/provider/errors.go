package provider

import (
	"errors"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Each of these functions marks what an error means to the host, which acts on it by the table
// in package ca. The operator reads the text: no keys, no tokens. nil stays nil.

// Invalid means that the request cannot be signed as it is. The attempt ends.
func Invalid(err error) error { return because(ca.Invalid, err) }

// Denied means that the caller is not allowed this certificate. The attempt ends.
func Denied(err error) error { return because(ca.Denied, err) }

// Unauthenticated means that the token or client certificate was not accepted. The host reads
// the token again and tries once more.
func Unauthenticated(err error) error { return because(ca.Unauthenticated, err) }

// RateLimited means too many requests, or an exhausted quota. The host waits; add the
// authority's delay with [RetryAfter].
func RateLimited(err error) error { return because(ca.RateLimited, err) }

// Unavailable means that the authority cannot be reached or is not ready. The host waits.
func Unavailable(err error) error { return because(ca.Unavailable, err) }

// Pending means that the authority has the request and has not decided on it yet, such as while
// a person has to approve it. The host repeats the request, with the same ID and CSR: after the
// authority's delay ([RetryAfter]), else within 10 minutes. It asks no other authority meanwhile.
func Pending(err error) error { return because(ca.Pending, err) }

// Aborted means a conflict with another request. The host waits.
func Aborted(err error) error { return because(ca.Aborted, err) }

// Internal means a failure of the authority or this provider. The host waits.
func Internal(err error) error { return because(ca.Internal, err) }

// RetryAfter adds the delay after which the authority wants the next try. An error that no
// function above has classified becomes [RateLimited].
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

// Errorf formats an error and applies one of the functions above, as in
// Errorf(Denied, "no entry for %s", name). It wraps a cause with %w.
func Errorf(as func(error) error, format string, args ...any) error {
	return as(ca.Errorf(ca.Unknown, format, args...))
}

// because gives err a reason and keeps its retry delay.
func because(reason Reason, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Reason: reason, Message: messageOf(err), RetryAfter: ca.RetryAfter(err), Err: err}
}

// messageOf returns the text without the reason, which the new error prints.
func messageOf(err error) string {
	if e, ok := err.(*Error); ok && e.Message != "" { //nolint:errorlint // the wrapping text is wanted where there is one
		return e.Message
	}
	return err.Error()
}

// CleanText makes text of an authority safe for an error or a log. It replaces each token, and
// each piece of one of 16 bytes or more, with "(secret)", escapes what does not print as Go
// does (\n, \x00, \u202e), and cuts the result to 256 bytes.
func CleanText(text string, tokens ...Token) string { return wire.CleanText(text, tokens...) }
