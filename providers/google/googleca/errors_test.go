package googleca

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func failing(err error) answer {
	return func(context.Context, *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
		return nil, err
	}
}

// busy has a retry-after, too.
func busy(t *testing.T, code codes.Code, text string) error {
	t.Helper()
	st, err := status.New(code, text).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestEachServiceCodeHasReasonAndOneCall(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := server.open(t, server.settings())
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
		for says, test := range map[string]struct {
			err   error
			after time.Duration
		}{"alone": {status.Error(code, "because"), 0}, "with RetryInfo": {busy(t, code, "because"), time.Minute}} {
			t.Run(fmt.Sprintf("%s %s", code, says), func(t *testing.T) {
				server.next(failing(test.err))
				req, _ := ask(t)
				_, err := c.CSRSign(t.Context(), req)
				mustBe(t, err, want, thePool+": because")
				server.last(t)
				if got := ca.RetryAfter(err); got != test.after {
					t.Errorf("to come back after %s, want %s", got, test.after)
				}
				server.set(func() { server.refuse = test.err })
				before := len(server.fetches())
				_, err = c.Roots(t.Context())
				mustBe(t, err, want, thePool+": because")
				if n := len(server.fetches()) - before; n != 1 || ca.RetryAfter(err) != test.after {
					t.Errorf("the roots were asked for %d times, to come back after %s", n, ca.RetryAfter(err))
				}
			})
		}
	}
}

func TestHangingCallEndsAtDeadlineAndSlowCallSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := start(t)
		c := server.open(t, server.settings())
		server.next(func(ctx context.Context, _ *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		req, _ := ask(t)
		_, err := c.CSRSign(testkit.Within(t, 200*time.Millisecond), req)
		mustBe(t, err, ca.ErrDeadline, thePool)
		server.last(t)
		server.next(func(ctx context.Context, order *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
			return server.make(ctx, order)
		})
		mustSign(t, c)
	})
}

func TestCancelledCallerEndsCall(t *testing.T) {
	t.Parallel()
	server := start(t)
	c := server.open(t, server.settings())
	ctx, cancel := context.WithCancel(t.Context())
	server.next(func(ctx context.Context, _ *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	req, _ := ask(t)
	if _, err := c.CSRSign(ctx, req); !errors.Is(err, context.Canceled) || ca.ActionFor(err) != ca.Drop {
		t.Errorf("got %v", err)
	}
}

func TestTokenQuotedByServiceIsRemoved(t *testing.T) {
	t.Parallel()
	server, log := start(t), &testkit.Log{}
	settings := server.settings()
	settings.Log = log.Logger()
	c := server.open(t, settings)
	token := theToken.Reveal()
	for _, text := range []string{
		"the token " + token + " is not valid",
		strings.Repeat("x", 230) + token, // the cut must not leave half of it
		"control \x1b[31m and\nlines: " + token,
	} {
		server.next(failing(status.Error(codes.Unauthenticated, text)))
		req, _ := ask(t)
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, ca.ErrUnauthenticated, thePool)
		if strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 500 {
			t.Errorf("%d bytes: %q", len(err.Error()), err)
		}
	}
	if text := log.Take(); text != "" {
		t.Errorf("logged %s", text)
	}
}

func TestNoTokenGoesOverPlaintext(t *testing.T) {
	t.Parallel()
	server := start(t)
	plain := grpc.NewServer()
	privatecapb.RegisterCertificateAuthorityServiceServer(plain, server)
	listener := bufconn.Listen(1 << 20)
	ended := make(chan error, 1)
	go func() { ended <- plain.Serve(listener) }()
	t.Cleanup(func() { plain.Stop(); <-ended })
	server.listener = listener
	// Even where the connection's TLS is broken, gRPC holds the token back.
	c := server.open(t, server.settings(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	mustFail(t, c, ca.ErrUnauthenticated, "cannot send secure credentials on an insecure connection")
	if n := len(server.calls()); n > 0 {
		t.Errorf("there were %d calls", n)
	}
}

func TestServerWithOtherRootIsNotCalled(t *testing.T) {
	t.Parallel()
	server := start(t)
	settings := server.settings()
	settings.RootFile = setting.File(fileOf(t, catest.NewCA(catest.Options{}).Bundle().PEM()))
	c := server.open(t, settings)
	mustFail(t, c, ca.ErrUnavailable, thePool, "certificate signed by unknown authority")
	if n := len(server.calls()); n > 0 {
		t.Errorf("there were %d calls", n)
	}
}

func TestAbsentServerIsUnavailable(t *testing.T) {
	t.Parallel()
	server := start(t)
	settings := server.settings()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	settings.Endpoint = listener.Addr().String()
	listener.Close()
	c, err := Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustFail(t, c, ca.ErrUnavailable, "connection refused")
}
