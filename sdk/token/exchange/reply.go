package exchange

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	maxToken = 64 << 10
	maxType  = 256
	// maxLife is the longest life that is believed.
	maxLife = 365 * 24 * time.Hour
)

// answer is a good reply (RFC 8693, section 2.2.1).
type answer struct {
	AccessToken string       `json:"access_token"`
	IssuedType  string       `json:"issued_token_type"`
	TokenType   string       `json:"token_type"`
	ExpiresIn   *json.Number `json:"expires_in"`
}

// read takes a reply for a token, or says what is wrong with it and shows nothing of
// it.
func (c *call) read(r endpoint.Reply) (ca.ExchangedToken, error) {
	if r.Status != http.StatusOK {
		return ca.ExchangedToken{}, c.refusal(r)
	}
	var a answer
	if json.Unmarshal(r.Body, &a) != nil {
		return ca.ExchangedToken{}, c.errorf(ca.Internal, "it answered with something else than the JSON of a token")
	}
	if fault := a.fault(); fault != "" {
		return ca.ExchangedToken{}, c.errorf(ca.Internal, "%s", fault)
	}
	out := ca.ExchangedToken{AccessToken: ca.Token(a.AccessToken), IssuedType: a.IssuedType}
	if life := a.life(); life > 0 {
		out.Expiry = clock.Wall().Add(life)
	}
	return out, nil
}

// fault says why an answer is not taken.
func (a answer) fault() string {
	switch {
	case a.AccessToken == "":
		return "it answered without an access_token"
	case len(a.AccessToken) > maxToken || strings.ContainsFunc(a.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "its access_token is too long, or has a character that cannot stand in a header"
	case !strings.EqualFold(a.TokenType, "Bearer") && a.TokenType != "N_A":
		return "its token_type is none that is sent as a bearer token; Bearer or N_A is taken"
	case a.IssuedType == "":
		return "it answered without an issued_token_type"
	case len(a.IssuedType) > maxType || strings.ContainsFunc(a.IssuedType, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "its issued_token_type is no URI"
	case a.ExpiresIn != nil && a.life() <= 0:
		return "its expires_in is no whole number of seconds between 1 and a year"
	}
	return ""
}

// life is zero where it is not told, or is out of bounds.
func (a answer) life() time.Duration {
	if a.ExpiresIn == nil {
		return 0
	}
	seconds, err := a.ExpiresIn.Int64()
	if err != nil || seconds < 0 || seconds > int64(maxLife/time.Second) {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
