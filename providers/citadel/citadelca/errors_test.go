package citadelca

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func failing(code codes.Code, text string) answer {
	return func(context.Context) ([]string, error) { return nil, status.Error(code, text) }
}

// busy has a retry-after, too.
func busy(t *testing.T, code codes.Code, text string) answer {
	t.Helper()
	st, err := status.New(code, text).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context) ([]string, error) { return nil, st.Err() }
}

// The host retries, by the reason. Five tries in the provider made 14 CSRs in the first 5 s.
func TestEachIstiodCodeHasReasonAndOneCall(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := mustOpen(t, server.settings(t))
	for code, want := range map[codes.Code]*ca.Error{
		codes.Canceled:           ca.ErrUnavailable,
		codes.Unknown:            ca.ErrUnknown,
		codes.InvalidArgument:    ca.ErrInvalid,
		codes.DeadlineExceeded:   ca.ErrDeadline,
		codes.NotFound:           ca.ErrInvalid,
		codes.AlreadyExists:      ca.ErrAborted,
		codes.PermissionDenied:   ca.ErrDenied,
		codes.ResourceExhausted:  ca.ErrRateLimited,
		codes.FailedPrecondition: ca.ErrInvalid,
		codes.Aborted:            ca.ErrAborted,
		codes.OutOfRange:         ca.ErrInvalid,
		codes.Unimplemented:      ca.ErrInvalid,
		codes.Internal:           ca.ErrInternal,
		codes.Unavailable:        ca.ErrUnavailable,
		codes.DataLoss:           ca.ErrInternal,
		codes.Unauthenticated:    ca.ErrUnauthenticated,
	} {
		t.Run(code.String(), func(t *testing.T) {
			defer server.forget()
			server.next(failing(code, "because"))
			mustFail(t, c, want, c.endpoint.address+": because")
			server.last(t)
		})
	}
}

func (i *istiod) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen, i.planned = nil, nil
}

func TestIstiodRetryAfterIsPassedOn(t *testing.T) {
	server := start(t)
	server.next(busy(t, codes.ResourceExhausted, "busy"))
	req, _ := ask(t, theToken)
	_, err := mustOpen(t, server.settings(t)).CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrRateLimited, "busy")
	if ca.RetryAfter(err) != time.Minute || len(server.calls()) != 1 {
		t.Errorf("to come back after %s, %d calls", ca.RetryAfter(err), len(server.calls()))
	}
}

func TestHangingCallEndsAtDeadlineAndSlowCallSucceeds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	server := start(t)
	c := mustOpen(t, server.settings(t))
	limited := deadline{t.Context(), make(chan struct{})}
	server.next(func(ctx context.Context) ([]string, error) {
		close(limited.passed)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	req, _ := ask(t, theToken)
	_, err := c.CSRSign(limited, req)
	mustBe(t, err, ca.ErrDeadline, c.endpoint.address)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not the context's", err)
	}
	server.forget()
	asked := make(chan struct{})
	server.next(func(ctx context.Context) ([]string, error) {
		close(asked)
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
		return server.sign(ctx, server.calls()[0].request)
	})
	mustSign(t, c)
	<-asked
}

// deadline is a context whose deadline passes when the test says so.
type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestCancelledCallerEndsCall(t *testing.T) {
	server := start(t)
	c := mustOpen(t, server.settings(t))
	ctx, cancel := context.WithCancel(t.Context())
	server.next(func(ctx context.Context) ([]string, error) { cancel(); <-ctx.Done(); return nil, ctx.Err() })
	req, _ := ask(t, theToken)
	if _, err := c.CSRSign(ctx, req); !errors.Is(err, context.Canceled) || ca.ActionFor(err) != ca.Drop {
		t.Errorf("got %v", err)
	}
	if calls := len(server.calls()); calls != 1 {
		t.Errorf("there were %d calls", calls)
	}
}

func TestTokenQuotedByIstiodIsRemoved(t *testing.T) {
	server, log := start(t), &testkit.Log{}
	settings := server.settings(t)
	settings.Log = log.Logger()
	c := mustOpen(t, settings)
	token := theToken.Reveal()
	for _, text := range []string{
		"the token " + token + " is not valid",
		"Bearer " + token,
		strings.Repeat("x", 230) + token, // the cut must not leave half of it
		"control \x1b[31m and\nlines: " + token,
	} {
		server.next(failing(codes.Unauthenticated, text))
		req, _ := ask(t, theToken)
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, ca.ErrUnauthenticated, c.endpoint.address)
		if strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 400 {
			t.Errorf("%d bytes: %q", len(err.Error()), err)
		}
	}
	if text := log.Take(); text != "" {
		t.Errorf("logged %s", text)
	}
}
