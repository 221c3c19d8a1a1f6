package status

import (
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

// WITSVIDs is how signing of WIT-SVIDs goes. Experimental.
type WITSVIDs struct {
	Provider string `json:"provider"`
	// State is one of those of JWTSVIDs.
	State string `json:"state"`
	witsvid.Status
}

// WITSVIDsOf describes those of a provider.
func WITSVIDsOf(provider string, s witsvid.Status) *WITSVIDs {
	return &WITSVIDs{provider, stateOfTokens(len(s.Keys), s.Missing, s.KeysFailure != nil, s.Failing), s}
}

// trouble is a sentence about what is wrong, or empty.
func (w *WITSVIDs) trouble() string {
	if w == nil {
		return ""
	}
	return troubleOfTokens("WIT-SVID", w.State)
}

func (m *markup) witSVIDs(w *WITSVIDs) {
	if w == nil {
		return
	}
	m.section("wit-svids", "WIT-SVIDs (experimental)", func() {
		m.badge(badgeOfTokens(w.State))
		m.numbers([]number{{"Keys", len(w.Keys)}, {"Held", w.Held}, {"Signed", w.Signed}, {"Failed requests", sumOf(w.Failures)}})
		m.put("<dl class=\"facts\">\n")
		m.fact("Provider", clean(w.Provider))
		m.fact("Keys", cleanAll(w.Keys))
		m.at("Keys received", w.KeysAt)
		m.jwtFailure("keys", (*jwtsvid.Failure)(w.KeysFailure), true)
		m.jwtFailure("request", (*jwtsvid.Failure)(w.Failure), w.Failing)
		m.put("</dl>\n")
	})
}

func sumOf(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
