package ca

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reason says why an authority did not do what was asked. Each reason has one
// gRPC status code and each gRPC status code has one reason; the table is in
// sdk/provider/wire.
type Reason int

// The reasons. Unknown is the zero value: an error nobody classified.
const (
	Unknown         Reason = iota // nobody knows; treated as Unavailable
	Invalid                       // the request can not be signed as it is
	Denied                        // the caller may not have what it asked for
	Unauthenticated               // the token or client certificate was not accepted
	RateLimited                   // too many requests, or a quota is used up
	Unavailable                   // the authority cannot be reached or is not ready
	Aborted                       // a conflict with another request
	Internal                      // the authority or its provider failed
	Deadline                      // no answer in time
	NotConfigured                 // the provider has no settings yet
	Unimplemented                 // the ability is missing
	Canceled                      // the caller went away
)

var reasonNames = [...]string{
	"unknown", "invalid request", "denied", "unauthenticated", "rate limited", "unavailable",
	"aborted", "internal error", "deadline exceeded", "not configured", "unimplemented", "canceled",
}

// String returns the reason in words, as in "rate limited": a fixed list, fit for a
// metric.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasonNames) {
		return fmt.Sprintf("reason %d", int(r))
	}
	return reasonNames[r]
}

// One sentinel for each reason, for [errors.Is].
var (
	ErrUnknown         = &Error{Reason: Unknown}
	ErrInvalid         = &Error{Reason: Invalid}
	ErrDenied          = &Error{Reason: Denied}
	ErrUnauthenticated = &Error{Reason: Unauthenticated}
	ErrRateLimited     = &Error{Reason: RateLimited}
	ErrUnavailable     = &Error{Reason: Unavailable}
	ErrAborted         = &Error{Reason: Aborted}
	ErrInternal        = &Error{Reason: Internal}
	ErrDeadline        = &Error{Reason: Deadline}
	ErrNotConfigured   = &Error{Reason: NotConfigured}
	ErrUnimplemented   = &Error{Reason: Unimplemented}
	ErrCanceled        = &Error{Reason: Canceled}
)

// Error is a failure with the reason for it. The text must hold no key and no
// token. It is not changed once returned, and may then be used by any goroutine.
type Error struct {
	Reason Reason
	// Message is a sentence for the operator; empty prints the reason alone.
	Message string
	// RetryAfter is the authority's own word on when to come back; zero where it
	// said nothing. Only reasons that wait look at it.
	RetryAfter time.Duration
	// Err is the cause, where there is one in this process.
	Err error
}

// Errorf returns an [*Error] for reason. The format may wrap a cause with %w.
func Errorf(reason Reason, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Reason: reason, Message: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

// Error returns the reason and the message.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Reason.String() + ": " + e.Message
	case e.Err != nil:
		return e.Reason.String() + ": " + e.Err.Error()
	}
	return e.Reason.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrDenied) true for every error of that reason, and
// keeps the promises of package context: a Deadline is
// [context.DeadlineExceeded], a Canceled is [context.Canceled].
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Reason == Deadline
	case context.Canceled:
		return e.Reason == Canceled
	}
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Err == nil && t.Reason == e.Reason
}

// ReasonFor returns the reason of any error: that of the [*Error] it is or wraps,
// Deadline and Canceled for those of package context, else Unknown.
func ReasonFor(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Deadline
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Unknown
}

// Action is what the caller does after an error.
type Action int

// The actions. Whatever happens, what is held is served on.
const (
	// Wait: try again with backoff and jitter, or when RetryAfter says.
	Wait Action = iota
	// EndAttempt: this attempt ends; the next comes after a minute, doubling to
	// ten, or at once when token, settings or provider change.
	EndAttempt
	// RefreshToken: read the token again and try once; then as EndAttempt.
	RefreshToken
	// Configure: send the settings, then try again.
	Configure
	// Missing: the ability is not there; remember that and do not ask again.
	Missing
	// Drop: the caller went away, nothing is retried.
	Drop
)

var actions = map[Reason]Action{
	Unknown: Wait, RateLimited: Wait, Unavailable: Wait, Aborted: Wait, Internal: Wait, Deadline: Wait,
	Invalid: EndAttempt, Denied: EndAttempt,
	Unauthenticated: RefreshToken, NotConfigured: Configure, Unimplemented: Missing, Canceled: Drop,
}

// ActionFor tells what to do after err. A reason from a later version of the
// contract is treated as Unknown.
func ActionFor(err error) Action { return actions[ReasonFor(err)] }

// RetryAfter returns the authority's own word on when to come back, or zero.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
