package citadelca

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
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

// busy says when to come back, too.
func busy(t *testing.T, code codes.Code, text string) answer {
	t.Helper()
	st, err := status.New(code, text).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context) ([]string, error) { return nil, st.Err() }
}

func TestEveryCodeOfIstiodsHasItsReasonAndIsTriedAgainOrNot(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := mustOpen(t, server.settings(t))
	for code, test := range map[codes.Code]struct {
		want  *ca.Error
		again bool
	}{
		codes.Canceled:           {ca.ErrUnavailable, false},
		codes.Unknown:            {ca.ErrUnknown, false},
		codes.InvalidArgument:    {ca.ErrInvalid, false},
		codes.DeadlineExceeded:   {ca.ErrDeadline, true},
		codes.NotFound:           {ca.ErrInvalid, false},
		codes.AlreadyExists:      {ca.ErrAborted, false},
		codes.PermissionDenied:   {ca.ErrDenied, false},
		codes.ResourceExhausted:  {ca.ErrRateLimited, true},
		codes.FailedPrecondition: {ca.ErrInvalid, false},
		codes.Aborted:            {ca.ErrAborted, true},
		codes.OutOfRange:         {ca.ErrInvalid, false},
		codes.Unimplemented:      {ca.ErrInvalid, false},
		codes.Internal:           {ca.ErrInternal, true},
		codes.Unavailable:        {ca.ErrUnavailable, true},
		codes.DataLoss:           {ca.ErrInternal, false},
		codes.Unauthenticated:    {ca.ErrUnauthenticated, false},
	} {
		t.Run(code.String(), func(t *testing.T) {
			defer server.forget()
			if !test.again {
				server.next(failing(code, "because"))
				mustFail(t, c, test.want, c.endpoint.address+": because")
				server.last(t)
				return
			}
			server.next(failing(code, "because"))
			mustSign(t, c)
			if calls := len(server.calls()); calls != 2 {
				t.Errorf("there were %d calls, not 2", calls)
			}
			server.forget()
			server.next(busy(t, code, "because"))
			mustFail(t, c, test.want, c.endpoint.address+": because")
			server.last(t)
		})
	}
}

func (i *istiod) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen, i.planned = nil, nil
}

func TestARetryIsTheVerySameRequest(t *testing.T) {
	t.Parallel()
	server := start(t)
	server.next(failing(codes.Unavailable, "x"), failing(codes.Aborted, "x"))
	mustSign(t, mustOpen(t, server.settings(t)))
	calls := server.calls()
	if len(calls) != 3 || calls[0].request.Csr != calls[2].request.Csr || calls[0].request.ValidityDuration != calls[2].request.ValidityDuration {
		t.Errorf("there were %d calls, or they differ", len(calls))
	}
}

func TestTheWaitsGrowFromATenthOfASecondAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		_, err := retry(t.Context(), func() (int, error) {
			at = append(at, time.Since(begin))
			return 0, status.Error(codes.Unavailable, "x")
		})
		if status.Code(err) != codes.Unavailable || len(at) != maxTries {
			t.Fatalf("%v after %d tries", err, len(at))
		}
		for i, wait := 1, firstWait; i < maxTries; i, wait = i+1, 2*wait {
			if got := at[i] - at[i-1]; got < wait*8/10 || got > wait*12/10 {
				t.Errorf("wait %d is %s, want %s or a fifth more or less", i, got, wait)
			}
		}
	})
}

func TestThereIsNoTryPastTheDeadlineAndTheErrorIsTheLastTrys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), firstWait*11/5)
		defer cancel()
		begin, tries := time.Now(), 0
		_, err := retry(ctx, func() (int, error) { tries++; return 0, status.Error(codes.Aborted, "last words") })
		if status.Code(err) != codes.Aborted || tries != 2 || time.Since(begin) > firstWait*6/5 {
			t.Errorf("%v after %d tries and %s", err, tries, time.Since(begin))
		}
	})
}

func TestAWaitEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(firstWait/2, cancel)
		begin := time.Now()
		if _, err := retry(ctx, func() (int, error) { return 0, status.Error(codes.Aborted, "x") }); err == nil || time.Since(begin) != firstWait/2 {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

func TestIstiodsOwnWordOnWhenToComeBackIsForTheHost(t *testing.T) {
	server := start(t)
	server.next(busy(t, codes.ResourceExhausted, "busy"))
	req, _ := ask(t, theToken)
	_, err := mustOpen(t, server.settings(t)).CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrRateLimited, "busy")
	if ca.RetryAfter(err) != time.Minute || len(server.calls()) != 1 {
		t.Errorf("to come back after %s, %d calls", ca.RetryAfter(err), len(server.calls()))
	}
}

func TestAHangingCallEndsWithItsDeadlineAndASlowOneIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := mustOpen(t, server.settings(t))
	server.next(func(ctx context.Context) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() })
	req, _ := ask(t, theToken)
	_, err := c.CSRSign(testkit.Within(t, 200*time.Millisecond), req)
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

func TestACallerThatGoesAwayEndsTheCall(t *testing.T) {
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

func TestATokenThatIstiodQuotesIsTakenOut(t *testing.T) {
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
