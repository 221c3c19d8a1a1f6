package status

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

func TestPageAndWarningsSayHowWITSVIDsGo(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	failure := func(reason string) *witsvid.Failure {
		return &witsvid.Failure{Reason: reason, Text: "<b>refused</b>", Action: ca.EndAttempt, At: now, NextTry: now.Add(time.Minute)}
	}
	keys := []string{"one", "two"}
	for name, test := range map[string]struct {
		of               witsvid.Status
		state, warn, say string
	}{
		"at the start": {witsvid.Status{}, tokensWaiting, "", "waiting for the provider's keys"},
		"offered":      {witsvid.Status{Keys: keys, Held: 3, Signed: 12, Failures: map[string]int{"denied": 1, "reply": 4}}, tokensOffered, "", "Keys2 Held3 Signed12 Failed requests5"},
		"failing":      {witsvid.Status{Keys: keys, Failing: true, Failure: failure("denied")}, tokensFailing, "A WIT-SVID could not be signed", "<b>refused</b>"},
		"old keys":     {witsvid.Status{Keys: keys, KeysFailure: failure("unavailable")}, tokensNotFollowed, "The keys of WIT-SVIDs are not followed", "keys: unavailable"},
		"no keys":      {witsvid.Status{KeysFailure: failure("unavailable")}, tokensNoKeys, "WIT-SVIDs have no keys", "no keys are known"},
		"no ability":   {witsvid.Status{Missing: true}, tokensUnable, "The provider of WIT-SVIDs signs none", "the provider signs none"},
	} {
		r := Report{At: now, WITSVIDs: TokensOf("corporate", test.of)}
		if got := strings.Join(r.Warnings(), "\n"); r.WITSVIDs.State != test.state || got != test.warn {
			t.Errorf("%s: it is %s, and warns %q", name, r.WITSVIDs.State, got)
		}
		_, doc := open(t, r)
		if got := strings.Join(strings.Fields(section(doc, "wit-svids")), " "); !strings.Contains(got, test.say) || !strings.Contains(got, "corporate") {
			t.Errorf("%s: %q is not in %s", name, test.say, got)
		}
	}
	if _, doc := open(t, Report{At: now}); section(doc, "wit-svids") != "" {
		t.Error("the page of an agent without the experiment has WIT-SVIDs")
	}
}
