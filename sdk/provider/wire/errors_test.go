package wire_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestEachReasonCrossesAsItsCodeAndComesBackAsItself(t *testing.T) {
	for reason, code := range map[ca.Reason]codes.Code{
		ca.Unknown: codes.Unknown, ca.Invalid: codes.InvalidArgument, ca.Denied: codes.PermissionDenied,
		ca.Unauthenticated: codes.Unauthenticated, ca.RateLimited: codes.ResourceExhausted, ca.Unavailable: codes.Unavailable,
		ca.Aborted: codes.Aborted, ca.Internal: codes.Internal, ca.Deadline: codes.DeadlineExceeded,
		ca.NotConfigured: codes.FailedPrecondition, ca.Unimplemented: codes.Unimplemented, ca.Canceled: codes.Canceled,
	} {
		sent := wire.ToStatus(fmt.Errorf("provider: %w", &ca.Error{Reason: reason, Message: "a sentence", RetryAfter: 90 * time.Second}))
		if got := status.Code(sent); got != code {
			t.Errorf("%v crosses as %v, want %v", reason, got, code)
		}
		got := wire.FromStatus(sent)
		if ca.ReasonFor(got) != reason || ca.RetryAfter(got) != 90*time.Second || !strings.Contains(got.Error(), "a sentence") {
			t.Errorf("%v came back as %v, retry after %s", reason, got, ca.RetryAfter(got))
		}
	}
}

// A provider in another language may send a code and nothing else.
func TestEachCodeAloneHasAReason(t *testing.T) {
	for code, reason := range map[codes.Code]ca.Reason{
		codes.Canceled: ca.Canceled, codes.Unknown: ca.Unknown, codes.InvalidArgument: ca.Invalid,
		codes.DeadlineExceeded: ca.Deadline, codes.NotFound: ca.Invalid, codes.AlreadyExists: ca.Aborted,
		codes.PermissionDenied: ca.Denied, codes.ResourceExhausted: ca.RateLimited, codes.FailedPrecondition: ca.NotConfigured,
		codes.Aborted: ca.Aborted, codes.OutOfRange: ca.Invalid, codes.Unimplemented: ca.Unimplemented,
		codes.Internal: ca.Internal, codes.Unavailable: ca.Unavailable, codes.DataLoss: ca.Internal,
		codes.Unauthenticated: ca.Unauthenticated, codes.Code(99): ca.Unknown,
	} {
		if got := ca.ReasonFor(wire.FromStatus(status.Error(code, "x"))); got != reason {
			t.Errorf("%v is %v, want %v", code, got, reason)
		}
	}
	if err := errors.Join(wire.FromStatus(nil), wire.ToStatus(nil)); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestErrorsOfPackageContextStayThemselvesOverTheWire(t *testing.T) {
	for _, err := range []error{context.DeadlineExceeded, context.Canceled} {
		if got := wire.FromStatus(wire.ToStatus(err)); !errors.Is(got, err) {
			t.Errorf("%v came back as %v", err, got)
		}
	}
}

func TestForeignTextIsBoundedAndEscaped(t *testing.T) {
	got := wire.FromStatus(status.Error(codes.Internal, "bell\a and "+strings.Repeat("x", 10_000))).Error()
	if len(got) > 400 || strings.Contains(got, "\a") {
		t.Errorf("%d bytes: %.80q", len(got), got)
	}
	if text := wire.CleanText("denied for eyJ.token", ca.Token("eyJ.token")); strings.Contains(text, "eyJ") {
		t.Errorf("the token is in %q", text)
	}
}

func TestAHostileRetryInfoIsBounded(t *testing.T) {
	for name, delay := range map[string]*durationpb.Duration{
		"negative": durationpb.New(-time.Hour), "huge": {Seconds: 1 << 62}, "invalid": {Seconds: 1, Nanos: -5},
	} {
		st, err := status.New(codes.Unavailable, "x").WithDetails(&errdetails.RetryInfo{RetryDelay: delay})
		if err != nil {
			t.Fatal(err)
		}
		if got := ca.RetryAfter(wire.FromStatus(st.Err())); got < 0 || got > 24*time.Hour {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTheStartUpDataNeverPrintsItsKey(t *testing.T) {
	data := wire.StartData{ServerCert: "cert", ServerKey: "SECRET"}
	var line strings.Builder
	if _, err := data.WriteTo(&line); err != nil {
		t.Fatal(err)
	}
	got, err := wire.ReadStartData(strings.NewReader(line.String()))
	if err != nil || got != data {
		t.Errorf("read back %v, %v", got, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", data, data, data); strings.Contains(text, "SECRET") {
		t.Error("it prints the key")
	}
	for _, bad := range []string{"", "{", `{"server_key":"SECRET"` + "\n", "[]\n", strings.Repeat("x", 100_000)} {
		if _, err := wire.ReadStartData(strings.NewReader(bad)); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func FuzzReadStartData(f *testing.F) {
	f.Add("{}\n")
	f.Fuzz(func(_ *testing.T, line string) { _, _ = wire.ReadStartData(strings.NewReader(line)) })
}
