package ca_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestEachReasonHasItsAction(t *testing.T) {
	for _, c := range []struct {
		err    *ca.Error
		action ca.Action
	}{
		{ca.ErrUnknown, ca.Wait}, {ca.ErrRateLimited, ca.Wait}, {ca.ErrUnavailable, ca.Wait},
		{ca.ErrAborted, ca.Wait}, {ca.ErrInternal, ca.Wait}, {ca.ErrDeadline, ca.Wait}, {ca.ErrPending, ca.Wait},
		{ca.ErrInvalid, ca.EndAttempt}, {ca.ErrDenied, ca.EndAttempt},
		{ca.ErrUnauthenticated, ca.RefreshToken}, {ca.ErrNotConfigured, ca.Configure},
		{ca.ErrUnimplemented, ca.Missing}, {ca.ErrCanceled, ca.Drop},
	} {
		wrapped := fmt.Errorf("provider file: %w", ca.Errorf(c.err.Reason, "some text"))
		if !errors.Is(wrapped, c.err) {
			t.Errorf("%v is not %v", wrapped, c.err)
		}
		if got := ca.ActionFor(wrapped); got != c.action {
			t.Errorf("%v: action %d, want %d", wrapped, got, c.action)
		}
	}
	if errors.Is(ca.ErrDenied, ca.ErrInvalid) {
		t.Error("denied is invalid")
	}
	if got := ca.ActionFor(ca.Errorf(ca.Reason(99), "from a later version")); got != ca.Wait {
		t.Errorf("an unknown reason: action %d, want Wait", got)
	}
}

func TestErrorsMatchContextErrors(t *testing.T) {
	if !errors.Is(ca.Errorf(ca.Deadline, "slow"), context.DeadlineExceeded) {
		t.Error("a Deadline is not context.DeadlineExceeded")
	}
	if !errors.Is(ca.Errorf(ca.Canceled, "gone"), context.Canceled) {
		t.Error("a Canceled is not context.Canceled")
	}
	for err, want := range map[error]ca.Reason{
		context.DeadlineExceeded: ca.Deadline, context.Canceled: ca.Canceled, io.EOF: ca.Unknown,
	} {
		if got := ca.ReasonFor(fmt.Errorf("call: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestErrorfKeepsItsCause(t *testing.T) {
	err := ca.Errorf(ca.Unavailable, "dial: %w", io.EOF)
	if !errors.Is(err, io.EOF) || err.Error() != "unavailable: dial: EOF" {
		t.Errorf("got %v", err)
	}
}

func TestRetryAfterIsFoundInWrappedError(t *testing.T) {
	err := fmt.Errorf("sign: %w", &ca.Error{Reason: ca.RateLimited, RetryAfter: time.Minute})
	if got := ca.RetryAfter(err); got != time.Minute {
		t.Errorf("got %v", got)
	}
	if got := ca.RetryAfter(io.EOF); got != 0 {
		t.Errorf("got %v from an error without a reason", got)
	}
}

func TestTokenIsHiddenFromPrintersLoggersAndEncoders(t *testing.T) {
	const text = "eyJhbGciOi.secret"
	req := ca.SignRequest{ID: "1", Token: text}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("request", "req", req, "token", req.Token)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("request", "req", req, "token", req.Token)
	encoded, _ := json.Marshal(req)
	for name, out := range map[string]string{
		"%v": fmt.Sprintf("%v", req), "%+v": fmt.Sprintf("%+v", &req), "%#v": fmt.Sprintf("%#v", req),
		"String": req.Token.String(), "%q": fmt.Sprintf("%q", req.Token), "%x": fmt.Sprintf("%x", req.Token),
		"json": string(encoded), "slog": log.String(),
	} {
		if strings.Contains(out, text) || strings.Contains(out, fmt.Sprintf("%x", text)) {
			t.Errorf("%s shows the token", name)
		}
	}
	for _, verb := range "dtcUep" { // those that fit no text print it as it is
		if out := fmt.Sprintf("%"+string(verb), []any{req, req.Token}); strings.Contains(out, text) {
			t.Errorf("%%%c shows the token", verb)
		}
	}
	if req.Token.Reveal() != text {
		t.Error("Reveal does not return the token")
	}
}
