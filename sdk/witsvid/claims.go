package witsvid

import (
	"crypto"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
)

// algorithm is that of our keys. Each implementation has it (draft-ietf-wimse-workload-creds-02,
// section 5.1).
const algorithm = jose.ES256

func publicJWK(key crypto.Signer) ([]byte, error) {
	return json.Marshal(jose.JSONWebKey{Key: key.Public(), Algorithm: string(algorithm)})
}

func privateJWK(key crypto.Signer) ([]byte, error) {
	return json.Marshal(jose.JSONWebKey{Key: key, Algorithm: string(algorithm)})
}

// bound are the claims of a WIT-SVID beside those of every token.
type bound struct {
	Audience json.RawMessage            `json:"aud"`
	Confirm  map[string]json.RawMessage `json:"cnf"`
}

// confirmed returns the key that a WIT-SVID is bound to. Its payload is verified.
func confirmed(payload []byte) (jose.JSONWebKey, error) {
	var c bound
	if err := json.Unmarshal(payload, &c); err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("its claims are malformed: %w", err)
	}
	switch {
	case c.Audience != nil:
		return jose.JSONWebKey{}, errors.New("it has an audience")
	case len(c.Confirm) != 1 || c.Confirm["jwk"] == nil:
		return jose.JSONWebKey{}, errors.New("its claim cnf is not a jwk alone")
	}
	return parseProofKey(c.Confirm["jwk"])
}

// parseProofKey parses a public key that names the algorithm of its proofs (WIT-SVID standard, section
// 3.2).
func parseProofKey(raw []byte) (key jose.JSONWebKey, err error) {
	if err := json.Unmarshal(raw, &key); err != nil {
		return key, errors.New("its claim cnf has no JWK of a known type")
	}
	if key.Algorithm == "" || !jws.Usable(key) || len(jws.Keys{key}.Find("", key.Algorithm)) == 0 {
		return key, fmt.Errorf("its claim cnf has a JWK that is not a public key for its alg %.64q", key.Algorithm)
	}
	return key, nil
}

// checkReply judges the authority's WIT-SVID for our key.
func checkReply(_ tokensource.Order, r tokensource.Reply, _ tokensource.Claims, payload []byte) error {
	key, err := confirmed(payload)
	if err != nil {
		return err
	}
	if !jws.SameKey(key, jose.JSONWebKey{Key: r.Key.Public(), Algorithm: string(algorithm)}) {
		return errors.New("its claim cnf is not the key of the request")
	}
	return nil
}
