package token

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxToken is the limit of the provider protocol, too; a Kubernetes projected token is
// below 4 KiB.
const maxToken = 64 << 10

// parse returns the token in content without surrounding white space. from begins the
// error, which does not show the content.
func parse(content []byte, from string) (ca.Bearer, error) {
	content = bytes.TrimSpace(content)
	if fault := faultOf(content); fault != "" {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s %s", from, fault)
	}
	return bearer(ca.Token(content)), nil
}

func bearer(t ca.Token) ca.Bearer { return ca.Bearer{Token: t, Expiry: Expiry(t)} }

// faultOf returns why the content is not a token. It accepts what fits in a header; RFC 6750,
// section 2.1, is narrower.
func faultOf(content []byte) string {
	switch {
	case len(content) == 0:
		return "is empty: a token is needed"
	case bytes.ContainsAny(content, "\r\n"):
		return "has more than one line: one token is needed"
	case bytes.ContainsFunc(content, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "has a space or a character that is not printable ASCII: one token is needed"
	}
	return ""
}

// Expiry returns the claim exp of a JWT (RFC 7519), or the zero time if there is none or t
// is not a JWT. It does not verify the token, so use the result only to decide when to
// look for another.
func Expiry(t ca.Token) time.Time {
	parts := bytes.Split([]byte(t.Reveal()), []byte{'.'})
	if len(parts) != 3 || len(t) > maxToken {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	// 1<<37 is in the year 6325: a later time carries no information.
	if json.Unmarshal(payload, &claims) != nil || !(claims.Expiry > 0 && claims.Expiry < 1<<37) {
		return time.Time{}
	}
	whole, part := math.Modf(claims.Expiry)
	return time.Unix(int64(whole), int64(part*1e9)) // a NumericDate may have a fraction
}
