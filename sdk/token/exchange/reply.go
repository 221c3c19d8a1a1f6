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
	// maxLife is the longest lifetime accepted.
	maxLife = 365 * 24 * time.Hour
)

// answer is a successful reply (RFC 8693, section 2.2.1).
type answer struct {
	AccessToken string       `json:"access_token"`
	IssuedType  string       `json:"issued_token_type"`
	TokenType   string       `json:"token_type"`
	ExpiresIn   *json.Number `json:"expires_in"`
}

// read returns the token in a reply, or an error that does not quote the reply.
func (c *call) read(r endpoint.Reply) (ca.ExchangedToken, error) {
	if r.Status != http.StatusOK {
		return ca.ExchangedToken{}, Refusal(c.host, r.Status, r.Header, r.Body, c.hidden...)
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

// fault returns why an answer is rejected.
func (a answer) fault() string {
	switch {
	case a.AccessToken == "":
		return "it answered without an access_token"
	case len(a.AccessToken) > maxToken || strings.ContainsFunc(a.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "its access_token is too long, or has a character that cannot stand in a header"
	case !strings.EqualFold(a.TokenType, "Bearer") && a.TokenType != "N_A":
		return "unsupported token_type; want Bearer or N_A"
	case a.IssuedType == "":
		return "it answered without an issued_token_type"
	case len(a.IssuedType) > maxType || strings.ContainsFunc(a.IssuedType, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "invalid issued_token_type: not a URI"
	case a.ExpiresIn != nil && a.life() <= 0:
		return "invalid expires_in: want a whole number of seconds from 1 to a year"
	}
	return ""
}

// life returns the lifetime; zero if missing or out of bounds.
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
