package wire_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestReasonsSurviveRoundTrip(t *testing.T) {
	for reason, code := range map[ca.Reason]codes.Code{
		ca.Unknown: codes.Unknown, ca.Invalid: codes.InvalidArgument, ca.Denied: codes.PermissionDenied,
		ca.Unauthenticated: codes.Unauthenticated, ca.RateLimited: codes.ResourceExhausted, ca.Unavailable: codes.Unavailable,
		ca.Aborted: codes.Aborted, ca.Internal: codes.Internal, ca.Deadline: codes.DeadlineExceeded,
		ca.NotConfigured: codes.FailedPrecondition, ca.Unimplemented: codes.Unimplemented, ca.Canceled: codes.Canceled,
		ca.Pending: codes.Unavailable,
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
func TestBareCodesHaveReasons(t *testing.T) {
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

func TestContextErrorsSurviveTheWire(t *testing.T) {
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

func TestHostileRetryInfoIsBounded(t *testing.T) {
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

func TestStartDataNeverPrintsItsKey(t *testing.T) {
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

func TestReasonWinsOverVagueCodeOnly(t *testing.T) {
	for name, c := range map[string]struct {
		code   codes.Code
		domain string
		word   string
		want   ca.Reason
	}{
		"vague code":         {codes.Unknown, wire.ErrorDomain, "RATE_LIMITED", ca.RateLimited},
		"code without a row": {codes.NotFound, wire.ErrorDomain, "DENIED", ca.Denied},
		"same":               {codes.Unavailable, wire.ErrorDomain, "UNAVAILABLE", ca.Unavailable},
		"contradiction":      {codes.PermissionDenied, wire.ErrorDomain, "UNAVAILABLE", ca.Denied},
		"another domain":     {codes.Unknown, "googleapis.com", "RATE_LIMITED", ca.Unknown},
		"unknown word":       {codes.Aborted, wire.ErrorDomain, "LATER", ca.Aborted},
		"of a later version": {codes.Unavailable, wire.ErrorDomain, "LATER", ca.Unavailable},
		"pending":            {codes.Unavailable, wire.ErrorDomain, "PENDING", ca.Pending},
		"pending elsewhere":  {codes.Unavailable, "googleapis.com", "PENDING", ca.Unavailable},
		"pending, denied":    {codes.PermissionDenied, wire.ErrorDomain, "PENDING", ca.Denied},
		"empty word":         {codes.NotFound, wire.ErrorDomain, "", ca.Invalid},
	} {
		st, err := status.New(c.code, "x").WithDetails(&errdetails.ErrorInfo{Domain: c.domain, Reason: c.word})
		if err != nil {
			t.Fatal(err)
		}
		if got := ca.ReasonFor(wire.FromStatus(st.Err())); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// An author returns what the CA's own gRPC client returned.
func TestUpstreamStatusIsAttributedToAuthority(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want := ca.ReasonFor(wire.FromStatus(status.Error(code, "x")))
		switch code {
		case codes.FailedPrecondition, codes.Unimplemented: // asks for no settings, lacks no ability
			want = ca.Invalid
		case codes.Canceled: // not by our caller
			want = ca.Unavailable
		}
		got := wire.FromStatus(wire.ToStatus(fmt.Errorf("pool a: %w", status.Error(code, "x"))))
		if ca.ReasonFor(got) != want {
			t.Errorf("%v of the authority is %v here, want %v", code, got, want)
		}
		if got := ca.ReasonFor(wire.FromUpstream(status.Error(code, "x"), "")); got != want {
			t.Errorf("%v from upstream is %v, want %v", code, got, want)
		}
	}
	st, err := status.New(codes.ResourceExhausted, "quota").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if got := ca.RetryAfter(wire.FromStatus(wire.ToStatus(st.Err()))); got != time.Minute {
		t.Errorf("the authority sent a minute, it became %s", got)
	}
	if got := ca.RetryAfter(wire.FromUpstream(st.Err(), "")); got != time.Minute {
		t.Errorf("the authority sent a minute, from upstream it is %s", got)
	}
}

func TestUpstreamTextOmitsSentToken(t *testing.T) {
	echo := status.Error(codes.Unauthenticated, strings.Repeat("x", 240)+" \"Bearer eyJhbGciOi.token\"")
	if got := wire.FromUpstream(echo, "eyJhbGciOi.token").Error(); strings.Contains(got, "eyJ") || !strings.Contains(got, "xxx") {
		t.Errorf("got %s", got)
	}
	if err := wire.FromUpstream(nil, "x"); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// gRPC makes these of an ingress's replies before its upstream is there.
func TestProxysPageIsUnavailableUpstream(t *testing.T) {
	for code, said := range map[codes.Code]string{
		codes.Unimplemented: "unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type \"text/html\"",
		codes.Internal:      "unexpected HTTP status code received from server: 400 (Bad Request)",
	} {
		if got := wire.FromUpstream(status.Error(code, said), ""); !errors.Is(got, ca.ErrUnavailable) {
			t.Errorf("got %v", got)
		}
	}
}

func TestOversizedUpstreamReplyIsNotRateLimited(t *testing.T) {
	// The words are gRPC's own, of a client that takes no such message.
	err := status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3145728 vs. 2097152)")
	if got := wire.FromUpstream(err, ""); !errors.Is(got, ca.ErrInternal) {
		t.Errorf("got %v", got)
	}
}

func TestTextIsCutBetweenRunesAndEscapes(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 300), strings.Repeat("\x00", 300), strings.Repeat("x", 256), strings.Repeat("x", 257), "\xff\u202e"} {
		got := wire.CleanText(text, "")
		if _, err := strconv.Unquote(`"` + got + `"`); err != nil || len(got) > 256 {
			t.Errorf("%.20q became %d bytes: %q", text, len(got), got)
		}
	}
	if got := wire.CleanText("\xff\u202e\n", ""); got != `\xff\u202e\n` {
		t.Errorf("got %s", got)
	}
	if got := wire.CleanText(strings.Repeat("x", 256), ""); len(got) != 256 || strings.Contains(got, "…") {
		t.Errorf("256 bytes were cut: %q", got)
	}
}

func TestTokenFragmentsAreRemoved(t *testing.T) {
	const token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJlLW9mLXRva2Vu"
	for text, want := range map[string]string{
		"bad: " + token:                         "bad: (secret)",
		"bad: " + token[:30] + " is malformed":  "bad: (secret) is malformed",
		"signature " + token[36:] + " is wrong": "signature (secret) is wrong",
		"bad: " + token[5:25] + "|" + token[:9]: "bad: (secret)|(secret)",
		"short: " + token[:12] + " is common":   "short: eyJhbGciOiJF is common",
	} {
		if got := wire.CleanText(text, token); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func FuzzCleanText(f *testing.F) {
	f.Add("denied for eyJ.token\n", "eyJ.token")
	f.Fuzz(func(t *testing.T, text, token string) {
		got := wire.CleanText(text, ca.Token(token))
		if len(got) > 256 || strings.ContainsFunc(got, unicode.IsControl) || !utf8.ValidString(got) {
			t.Errorf("%q became %q", text, got)
		}
		if token = strings.TrimSpace(token); len(token) > len("(secret)") && strings.Contains(got, token) && strings.Contains(text, token) {
			t.Errorf("the token %q is in %q", token, got)
		}
	})
}
