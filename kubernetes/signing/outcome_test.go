package signing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// A final word about a pod is for ever. An authority has none.
func TestNoErrorOfAnAuthorityIsFinal(t *testing.T) {
	for reason := ca.Unknown; reason <= ca.Canceled; reason++ {
		for _, told := range []time.Duration{0, time.Millisecond, 30 * time.Second, 10 * time.Hour} {
			out := signing.OutcomeOf(&ca.Error{Reason: reason, Message: "no\n" + strings.Repeat("x", 1000), RetryAfter: told})
			if out.Final || out.KeyType {
				t.Errorf("%s is final", reason)
			}
			if out.Again < max(time.Second, min(told, time.Minute)) || out.Again > 90*time.Second {
				t.Errorf("%s, after %s: comes back in %s", reason, told, out.Again)
			}
			if len(out.Message) > 256 || !strings.HasPrefix(out.Message, `no\n`) {
				t.Errorf("%s: message %q", reason, out.Message)
			}
		}
	}
}

func TestThoseRefusedTogetherComeBackSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[signing.OutcomeOf(ca.ErrUnavailable).Again.Round(10*time.Millisecond)] = true
	}
	if len(seen) < 20 {
		t.Errorf("%d times for 100", len(seen))
	}
}
