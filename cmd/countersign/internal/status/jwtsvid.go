package status

import (
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// JWTSVIDs is how signing of JWT-SVIDs goes.
type JWTSVIDs struct {
	Provider string `json:"provider"`
	// State is offered, waiting (for the provider's first keys), failing (the last request for
	// one), keys-not-followed, no-keys, or unable (the provider lacks the ability).
	State string `json:"state"`
	// Audiences are those that are allowed.
	Audiences []string `json:"audiences"`
	jwtsvid.Status
}

// The states of JWT-SVIDs.
const (
	jwtOffered     = "offered"
	jwtWaiting     = "waiting"
	jwtFailing     = "failing"
	jwtNotFollowed = "keys-not-followed"
	jwtNoKeys      = "no-keys"
	jwtUnable      = "unable"
)

// JWTSVIDsOf describes those of a provider.
func JWTSVIDsOf(provider string, audiences []string, s jwtsvid.Status) *JWTSVIDs {
	return &JWTSVIDs{Provider: provider, State: stateOfTokens(len(s.Keys), s.Missing, s.KeysFailure != nil, s.Failing), Audiences: audiences, Status: s}
}

func stateOfTokens(keys int, missing, behind, failing bool) string {
	switch {
	case missing:
		return jwtUnable
	case keys == 0 && !behind:
		return jwtWaiting
	case keys == 0:
		return jwtNoKeys
	case behind:
		return jwtNotFollowed
	case failing:
		return jwtFailing
	}
	return jwtOffered
}

func (j *JWTSVIDs) badge() badge { return badgeOfTokens(j.State) }

func badgeOfTokens(state string) badge {
	return map[string]badge{
		jwtOffered:     {"offered", good},
		jwtWaiting:     {"waiting for the provider's keys", fair},
		jwtFailing:     {"offered; the last request failed", fair},
		jwtNotFollowed: {"offered; changes of the keys are not known", fair},
		jwtNoKeys:      {"not offered: no keys are known", bad},
		jwtUnable:      {"not offered: the provider signs none", bad},
	}[state]
}

// trouble is a sentence about what is wrong, or empty.
func (j *JWTSVIDs) trouble() string {
	if j == nil {
		return ""
	}
	return troubleOfTokens("JWT-SVID", j.State)
}

func troubleOfTokens(kind, state string) string {
	return map[string]string{
		jwtFailing: "A " + kind + " could not be signed.", jwtNotFollowed: "The keys of " + kind + "s are not followed.",
		jwtNoKeys: kind + "s have no keys.", jwtUnable: "The provider of " + kind + "s signs none.",
	}[state]
}

func (m *markup) jwtSVIDs(j *JWTSVIDs) {
	if j == nil {
		return
	}
	m.section("jwt-svids", "JWT-SVIDs", func() {
		m.badge(j.badge())
		m.numbers([]number{
			{"Keys", len(j.Keys)}, {"Held", j.Held}, {"Signed", j.Signed}, {"Failed requests", sumOf(j.Failures)}, {"Audiences refused", j.Refused},
		})
		m.put("<dl class=\"facts\">\n")
		m.fact("Provider", clean(j.Provider))
		m.fact("Audiences", cleanAll(j.Audiences))
		m.fact("Keys", cleanAll(j.Keys))
		m.at("Keys received", j.KeysAt)
		m.jwtFailure("keys", j.KeysFailure, true)
		m.jwtFailure("request", j.Failure, j.Failing)
		m.put("</dl>\n")
	})
}

// jwtFailure writes a failure, and while it lasts what to do.
func (m *markup) jwtFailure(of string, f *jwtsvid.Failure, lasts bool) {
	if f == nil {
		return
	}
	shown := &secret.Failure{Reason: of + ": " + f.Reason, At: f.At}
	if lasts {
		shown.NextTry = f.NextTry
	}
	m.failure("Last failure", shown)
	m.fact("Error", clean(f.Text))
	if lasts {
		m.fact("What to do", jwtAdvice(f))
	}
}

// jwtAdvice returns what the operator can do about a failure.
func jwtAdvice(f *jwtsvid.Failure) string {
	switch f.Reason {
	case jwtsvid.BadReply:
		return wrongReply
	case ca.Invalid.String():
		return "Compare the SPIFFE ID, the audiences and workload_api.jwt_svid.ttl with what the CA signs."
	}
	_, do := adviceOn(secret.Event{Reason: f.Reason, Failure: &secret.Failure{Action: f.Action, Text: f.Text}})
	return do
}
