// Command countersign-provider-strict is the file provider behind a door, for tests: it
// signs for whoever a token was made for, and for nobody else, as istiod does. A token is
// a JWT (RFC 7519) with HS256.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

type settings struct {
	Dir    string `json:"dir" jsonschema:"the folder with the CA"`
	Secret string `json:"secret" jsonschema:"what tokens are signed with"`
}

type strict struct {
	*fileca.CA
	settings
}

func open(ctx context.Context, s settings) (strict, error) {
	authority, err := fileca.Open(ctx, fileca.Settings{Dir: s.Dir})
	return strict{authority, s}, err
}

// CSRSign signs for the owner of the token.
func (s strict) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	owner := s.owner(req.Token.Reveal())
	if owner == "" || req.SubjectID != "spiffe://e2e.test/"+owner {
		return ca.Certificate{}, ca.Errorf(ca.Unauthenticated, "the token is not that of %s", req.SubjectID)
	}
	return s.CA.CSRSign(ctx, req)
}

// owner returns the subject of a good token.
func (s strict) owner(token string) string {
	end := strings.LastIndexByte(token, '.')
	if end < 0 {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(s.Secret))
	mac.Write([]byte(token[:end]))
	if token[end+1:] != base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) {
		return ""
	}
	_, middle, _ := strings.Cut(token[:end], ".")
	text, err := base64.RawURLEncoding.DecodeString(middle)
	var claims struct {
		Subject string  `json:"sub"`
		Expiry  float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || float64(time.Now().Unix()) >= claims.Expiry {
		return ""
	}
	return claims.Subject
}

func main() { provider.Main("strict", "test", open) }
