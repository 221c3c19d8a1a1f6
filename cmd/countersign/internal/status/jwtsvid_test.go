package status

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
)

func TestPageAndReadinessSayHowJWTSVIDsGo(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	actions := map[string]ca.Action{"unimplemented": ca.Missing, "denied": ca.EndAttempt, jwtsvid.BadReply: ca.Wait, ca.Invalid.String(): ca.EndAttempt}
	failure := func(reason string) *jwtsvid.Failure {
		return &jwtsvid.Failure{Reason: reason, Text: "dial: connection refused", Action: actions[reason], At: now, NextTry: now.Add(time.Minute)}
	}
	keys := []string{"one", "two"}
	for name, test := range map[string]struct {
		of               jwtsvid.Status
		state, warn, say string
	}{
		"at the start":        {jwtsvid.Status{}, tokensWaiting, "", "waiting for the provider's keys"},
		"offered":             {jwtsvid.Status{Keys: keys, Held: 3, Signed: 12}, tokensOffered, "", "Keys2 Held3 Signed12"},
		"offered again":       {jwtsvid.Status{Keys: keys, Failure: failure("denied")}, tokensOffered, "", "request: denied"},
		"failing":             {jwtsvid.Status{Keys: keys, Failing: true, Failure: failure("unavailable")}, tokensFailing, "A JWT-SVID could not be signed", "Nothing listens at the CA's address"},
		"a lie":               {jwtsvid.Status{Keys: keys, Failing: true, Failure: failure(jwtsvid.BadReply)}, tokensFailing, "A JWT-SVID could not be signed", "report it to the provider's author"},
		"refused for its TTL": {jwtsvid.Status{Keys: keys, Failing: true, Failure: failure(ca.Invalid.String())}, tokensFailing, "A JWT-SVID could not be signed", "workload_api.jwt_svid.ttl"},
		"old keys":            {jwtsvid.Status{Keys: keys, KeysFailure: failure("unavailable")}, tokensNotFollowed, "The keys of JWT-SVIDs are not followed", "keys: unavailable"},
		"no keys":             {jwtsvid.Status{KeysFailure: failure("unavailable")}, tokensNoKeys, "JWT-SVIDs have no keys", "no keys are known"},
		"no ability":          {jwtsvid.Status{Missing: true, KeysFailure: failure("unimplemented")}, tokensUnable, "The provider of JWT-SVIDs signs none", "Use a provider with this ability"},
	} {
		r := Report{At: now, JWTSVIDs: JWTSVIDsOf("corporate", []string{"https://*"}, test.of)}
		if got := strings.Join(r.Warnings(), "\n"); r.JWTSVIDs.State != test.state || got != test.warn {
			t.Errorf("%s: it is %s, and warns %q", name, r.JWTSVIDs.State, got)
		}
		_, doc := open(t, r)
		if got := strings.Join(strings.Fields(section(doc, "jwt-svids")), " "); !strings.Contains(got, test.say) || !strings.Contains(got, "corporate") || !strings.Contains(got, "https://*") {
			t.Errorf("%s: %q is not in %s", name, test.say, got)
		}
	}
	if _, doc := open(t, Report{At: now}); section(doc, "jwt-svids") != "" {
		t.Error("the page of an agent without them has them")
	}
}

// section is the text of a part of the page.
func section(doc *html.Node, id string) string {
	for _, n := range elements(doc, "section") {
		if attr(n, "id") == id {
			return text(n)
		}
	}
	return ""
}
