package status

import (
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

// Tokens is how a provider signs JWT-SVIDs or WIT-SVIDs.
type Tokens struct {
	Provider string `json:"provider"`
	// State is offered, waiting (for the provider's first keys), failing (the last request for
	// one), keys-not-followed, no-keys, or unable (the provider lacks the ability).
	State string `json:"state"`
	witsvid.Status
}

// JWTSVIDs are those of the workloads.
type JWTSVIDs struct {
	Tokens
	// Audiences are those that are allowed.
	Audiences []string `json:"audiences"`
	// Refused counts requests for other audiences.
	Refused int `json:"refused_audiences"`
}

// The states of tokens.
const (
	tokensOffered     = "offered"
	tokensWaiting     = "waiting"
	tokensFailing     = "failing"
	tokensNotFollowed = "keys-not-followed"
	tokensNoKeys      = "no-keys"
	tokensUnable      = "unable"
)

// TokensOf describes the WIT-SVIDs of a provider.
func TokensOf(provider string, s witsvid.Status) *Tokens {
	return &Tokens{provider, stateOf(s), s}
}

// JWTSVIDsOf describes those of a provider.
func JWTSVIDsOf(provider string, audiences []string, s jwtsvid.Status) *JWTSVIDs {
	return &JWTSVIDs{*TokensOf(provider, witsvid.Status{
		Keys: s.Keys, KeysAt: s.KeysAt, KeysFailure: (*witsvid.Failure)(s.KeysFailure), Missing: s.Missing, Held: s.Held,
		Signed: s.Signed, Failures: s.Failures, Failure: (*witsvid.Failure)(s.Failure), Failing: s.Failing,
	}), audiences, s.Refused}
}

func stateOf(s witsvid.Status) string {
	switch behind := s.KeysFailure != nil; {
	case s.Missing:
		return tokensUnable
	case len(s.Keys) == 0 && !behind:
		return tokensWaiting
	case len(s.Keys) == 0:
		return tokensNoKeys
	case behind:
		return tokensNotFollowed
	case s.Failing:
		return tokensFailing
	}
	return tokensOffered
}

func (t *Tokens) badge() badge {
	return map[string]badge{
		tokensOffered:     {"offered", good},
		tokensWaiting:     {"waiting for the provider's keys", fair},
		tokensFailing:     {"offered; the last request failed", fair},
		tokensNotFollowed: {"offered; changes of the keys are not known", fair},
		tokensNoKeys:      {"not offered: no keys are known", bad},
		tokensUnable:      {"not offered: the provider signs none", bad},
	}[t.State]
}

// trouble is a sentence about what is wrong with a kind of tokens, or empty.
func (t *Tokens) trouble(kind string) string {
	return map[string]string{
		tokensFailing: "A " + kind + " could not be signed.", tokensNotFollowed: "The keys of " + kind + "s are not followed.",
		tokensNoKeys: kind + "s have no keys.", tokensUnable: "The provider of " + kind + "s signs none.",
	}[t.State]
}

func (m *markup) jwtSVIDs(j *JWTSVIDs) {
	if j != nil {
		m.tokens("jwt-svids", "JWT-SVIDs", &j.Tokens, j.Audiences, number{"Audiences refused", j.Refused})
	}
}

func (m *markup) witSVIDs(t *Tokens) {
	if t != nil {
		m.tokens("wit-svids", "WIT-SVIDs (experimental)", t, nil)
	}
}

func (m *markup) tokens(id, title string, t *Tokens, audiences []string, more ...number) {
	m.section(id, title, func() {
		m.badge(t.badge())
		m.numbers(append([]number{{"Keys", len(t.Keys)}, {"Held", t.Held}, {"Signed", t.Signed}, {"Failed requests", sumOf(t.Failures)}}, more...))
		m.put("<dl class=\"facts\">\n")
		m.fact("Provider", clean(t.Provider))
		if audiences != nil {
			m.fact("Audiences", cleanAll(audiences))
		}
		m.fact("Keys", cleanAll(t.Keys))
		m.at("Keys received", t.KeysAt)
		m.tokenFailure("keys", t.KeysFailure, true)
		m.tokenFailure("request", t.Failure, t.Failing)
		m.put("</dl>\n")
	})
}

func sumOf(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// tokenFailure writes a failure, and while it lasts what to do.
func (m *markup) tokenFailure(of string, f *witsvid.Failure, lasts bool) {
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
		m.fact("What to do", tokenAdvice(f))
	}
}

// tokenAdvice returns what the operator can do about a failure.
func tokenAdvice(f *witsvid.Failure) string {
	switch f.Reason {
	case jwtsvid.BadReply:
		return wrongReply
	case ca.Invalid.String():
		return "Compare the SPIFFE ID, the audiences and workload_api.jwt_svid.ttl with what the CA signs."
	}
	_, do := adviceOn(secret.Event{Reason: f.Reason, Failure: &secret.Failure{Action: f.Action, Text: f.Text}})
	return do
}
