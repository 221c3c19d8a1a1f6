// Package jws reads signed tokens (RFC 7515, RFC 7519): [ParseKeys] reads an issuer's keys,
// [Parse] a token, whose claims count once [Token.Payload] has verified them.
package jws

import (
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const maxKeyID = 256

// SVIDAlgorithms are those of a JWT-SVID (the JWT-SVID standard, section 2.1).
var SVIDAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512,
}

// Token is an unverified token in compact form.
type Token struct {
	signed *jose.JSONWebSignature
	// KeyID may be empty.
	KeyID, Algorithm string
}

// Parse reads a token that is signed by one of these algorithms. It takes the compact form only:
// the JSON form may have several signatures and headers that none of them covers.
func Parse(token string, algorithms []jose.SignatureAlgorithm) (Token, error) {
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		if bad, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
			return Token{}, fmt.Errorf("the token is signed with %.64q; %v are allowed", string(bad.Got), algorithms)
		}
		return Token{}, fmt.Errorf("malformed token: %w", err)
	}
	// The caller controls the header: only the algorithm and the key ID count, never a
	// key or a URL (jwk, jku, x5c, x5u).
	header := signed.Signatures[0].Header
	if len(header.KeyID) > maxKeyID {
		return Token{}, fmt.Errorf("the token's key ID has %d bytes, %d are allowed", len(header.KeyID), maxKeyID)
	}
	return Token{signed, header.KeyID, header.Algorithm}, nil
}

// Type returns the header typ, or an empty string.
func (t Token) Type() string {
	text, _ := t.signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType].(string)
	return text
}

// UnverifiedSubject returns the token's unverified subject: use it only to find the keys to verify
// with. It is empty if the token has none.
func (t Token) UnverifiedSubject() string {
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(t.signed.UnsafePayloadWithoutVerification(), &claims) != nil {
		return ""
	}
	return claims.Subject
}

// UnverifiedPayload returns the claims before they are verified: those of an own token only.
func (t Token) UnverifiedPayload() []byte { return t.signed.UnsafePayloadWithoutVerification() }

// Payload returns the claims if one of the keys has signed them.
func (t Token) Payload(keys []jose.JSONWebKey) ([]byte, error) {
	for _, key := range keys {
		if payload, err := t.signed.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, fmt.Errorf("the token's signature does not verify with the issuer's key %q", t.KeyID)
}
