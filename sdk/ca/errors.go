package ca

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reason is why an authority did not do what it was asked. Each has a gRPC status code;
// the table is in sdk/provider/wire.
type Reason int

// The reasons. Unknown is the zero value: an unclassified error.
const (
	Unknown         Reason = iota // unclassified; treated as Unavailable
	Invalid                       // the request cannot be signed as it is
	Denied                        // the caller may not have what it asked for
	Unauthenticated               // the authority rejected the token or client certificate
	RateLimited                   // too many requests, or a quota is exhausted
	Unavailable                   // the authority cannot be reached or is not ready
	Aborted                       // a conflict with another request
	Internal                      // the authority or its provider failed
	Deadline                      // no reply in time
	NotConfigured                 // the provider has no settings yet
	Unimplemented                 // the ability is missing
	Canceled                      // the caller went away
	Pending                       // the authority has the request and has not decided on it yet
)

var reasonNames = [...]string{
	"unknown", "invalid request", "denied", "unauthenticated", "rate limited", "unavailable",
	"aborted", "internal error", "deadline exceeded", "not configured", "unimplemented", "canceled",
	"pending",
}

// String returns the reason in words, such as "rate limited". The list is fixed, so the
// result fits a metric label.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasonNames) {
		return fmt.Sprintf("reason %d", int(r))
	}
	return reasonNames[r]
}

// Reasons returns all reasons, for tables that have an entry for each.
func Reasons() []Reason {
	all := make([]Reason, len(reasonNames))
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// Each reason has a sentinel for [errors.Is].
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
	ErrPending         = &Error{Reason: Pending}
)

// Error is a failure with its reason. The text must contain no key and no token. An
// Error does not change once returned; any goroutine may then use it.
type Error struct {
	Reason Reason
	// Message is a sentence for the operator. If it is empty, Error prints the reason
	// and Err.
	Message string
	// RetryAfter is how long the authority asks the caller to wait; zero if it did not
	// say. Only reasons that wait use it.
	RetryAfter time.Duration
	// Err is the cause, if it occurred in this process.
	Err error
}

// Errorf returns an [*Error] with the given reason. The format may wrap a cause with
// %w.
func Errorf(reason Reason, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Reason: reason, Message: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

// Error returns the reason followed by the message, or by the cause if there is no
// message.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Reason.String() + ": " + e.Message
	case e.Err != nil:
		return e.Reason.String() + ": " + e.Err.Error()
	}
	return e.Reason.String()
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of e's reason, as in errors.Is(err,
// ErrDenied). It also matches package context: a Deadline is
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

// ReasonFor returns the reason of err: that of the [*Error] it is or wraps, Deadline or
// Canceled for the errors of package context, and Unknown otherwise.
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

// The actions. The caller keeps serving what it holds, whatever the action.
const (
	// Wait means to retry with backoff and jitter, or after RetryAfter.
	Wait Action = iota
	// EndAttempt means to give up this attempt. The next comes after one minute, doubling to
	// ten (sooner while nothing is held, or little is left), or at once when the token, the
	// settings or the provider change.
	EndAttempt
	// RefreshToken means to read the token again and retry once; then as EndAttempt.
	RefreshToken
	// Configure means to send the settings, then retry.
	Configure
	// Missing means that the authority lacks the ability: do without it. What is needed is
	// asked for again every 10 minutes, as another version may have it.
	Missing
	// Drop means that the caller went away: retry nothing.
	Drop
)

var actions = map[Reason]Action{
	Unknown: Wait, RateLimited: Wait, Unavailable: Wait, Aborted: Wait, Internal: Wait, Deadline: Wait, Pending: Wait,
	Invalid: EndAttempt, Denied: EndAttempt,
	Unauthenticated: RefreshToken, NotConfigured: Configure, Unimplemented: Missing, Canceled: Drop,
}

// ActionFor returns what to do after err. A reason from a later version of the contract
// counts as Unknown.
func ActionFor(err error) Action { return actions[ReasonFor(err)] }

// RetryAfter returns how long the authority asks the caller to wait, or zero.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
