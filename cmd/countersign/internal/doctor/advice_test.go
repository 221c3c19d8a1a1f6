package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func stepNamed(t *testing.T, name string) step {
	t.Helper()
	for _, s := range steps {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no step %s", name)
	return step{}
}

// Each step that calls the provider gives the advice of the error's reason.
func TestAdviceGoesByTheReason(t *testing.T) {
	wants := map[ca.Reason]string{
		ca.Unknown: "give the error a reason", ca.Denied: "have the CA permit this", ca.Unauthenticated: "token or client certificate that the CA accepts",
		ca.RateLimited: "quota", ca.Unavailable: "can be reached from here", ca.Aborted: "try again", ca.Internal: "log", ca.Deadline: "no reply came in time",
		ca.NotConfigured: "lost the settings", ca.Unimplemented: "has this ability", ca.Canceled: "interrupted", ca.Pending: "approved at the CA",
	}
	e := &examination{}
	for _, name := range []string{"authority", "configure", "ready", "jwt-svid", "wit-svid", "sign"} {
		s := stepNamed(t, name)
		for _, r := range ca.Reasons() {
			want := wants[r]
			if r == ca.Invalid {
				want = s.advice
			}
			got := e.adviceFor(s, ca.Errorf(r, "dial tcp 127.0.0.1:1: connection refused"))
			if want == "" || !strings.Contains(got, want) || strings.Contains(got, "\n") {
				t.Errorf("%s, %s: %q", name, r, got)
			}
		}
	}
	if got := e.adviceFor(stepNamed(t, "sign"), ca.Errorf(ca.Unavailable, "connection refused")); strings.Contains(got, "token") {
		t.Errorf("a CA that is away: %q", got)
	}
}

// No CA is asked before the provider runs and while it validates its settings: the advice is the
// step's.
func TestAdviceGoesByTheStepBeforeACAIsAsked(t *testing.T) {
	e := &examination{}
	for _, name := range []string{"find", "permissions", "architecture", "start", "handshake", "metadata", "schema", "settings"} {
		s := stepNamed(t, name)
		for _, err := range []error{errors.New("x"), ca.Errorf(ca.Unavailable, "x"), ca.Errorf(ca.Invalid, "x")} {
			if got := e.adviceFor(s, err); got != s.advice || got == "" {
				t.Errorf("%s: %v: %q", name, err, got)
			}
		}
	}
}
