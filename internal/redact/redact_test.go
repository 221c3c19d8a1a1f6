package redact_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	header  = "eyJhbGciOiJFUzI1NiJ9" // each segment of the token is a secret of its own
	payload = "eyJzdWIiOiJ4In0x"
	sign    = "c2lnbmF0dXJlIG9mIHRoZSB0b2tlbg"
	token   = ca.Token(header + "." + payload + "." + sign)
)

func TestErrorWithoutTokenStaysTheSame(t *testing.T) {
	for _, err := range []error{nil, errors.New("down"), fmt.Errorf("again: %w", ca.ErrDenied)} {
		if got := redact.Error(err, token, ""); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestErrorKeepsReasonAndWaitWithoutToken(t *testing.T) {
	for name, quoted := range map[string]string{
		"whole": token.Reveal(), "header": header, "payload": payload, "signature": sign, "cut": token.Reveal()[:30] + "…",
		"after 300 bytes": strings.Repeat("x", 300) + token.Reveal(),
	} {
		err := fmt.Errorf("call: %w", &ca.Error{Reason: ca.RateLimited, Message: "bad token " + quoted, RetryAfter: time.Minute})
		got := redact.Error(err, token)
		if !errors.Is(got, ca.ErrRateLimited) || ca.RetryAfter(got) != time.Minute {
			t.Errorf("%s: the error became %v", name, got)
		}
		for _, piece := range []string{header, payload, sign} {
			if strings.Contains(fmt.Sprintf("%v %+v %#v", got, got, got), piece) {
				t.Errorf("%s: the error shows %s: %v", name, piece, got)
			}
		}
	}
}

func TestErrorHasItsReasonOnce(t *testing.T) {
	got := redact.Error(ca.Errorf(ca.Denied, "not for %s", token.Reveal()), token)
	if want := "denied: not for (secret)"; got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
