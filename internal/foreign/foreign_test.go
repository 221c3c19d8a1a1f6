package foreign_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/foreign"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestTokensOfOneIssuerAreReplacedWhole(t *testing.T) {
	const begin = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9."
	first, second := ca.Token(begin+"Zmlyc3Q.c2ln"), ca.Token(begin+"c2Vjb25k.bmF0dXJl")
	for text, want := range map[string]string{
		"not for " + second.Reveal() + ", nor " + first.Reveal() + ".": "not for (token), nor (token).",
		"begins with " + begin + " as all do":                          "begins with (token) as all do",
		"no token at all\n":                                            `no token at all\n`,
	} {
		if got := foreign.Clean(text, first, second, ""); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := foreign.Clean(strings.Repeat("x", 300)); len(got) > 256 || !strings.HasSuffix(got, "…") {
		t.Errorf("got %d bytes, %q", len(got), got)
	}
}

func TestWhenToComeBackIsSecondsOrATimeAndADayAtMost(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "": 0, "-1": 0, "soon": 0, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0,
		"2000000000": 24 * time.Hour, "99999999999999999999": 0,
	} {
		if got := foreign.RetryAfter(value, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
