package witsvid

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// proofKind is that of proofs of possession.
var proofKind = tokensource.Kind{Name: "workload proof token", Types: []string{"wpt+jwt"}}

const (
	proofLife   = time.Minute
	maxAudience = 2048 // bytes
	maxID       = 256  // bytes
)

// proofClaims are those of a proof (draft-ietf-wimse-wpt-02, section 2).
type proofClaims struct {
	Audience jws.Audience `json:"aud"`
	Expiry   *float64     `json:"exp"`
	ID       string       `json:"jti"`
	Hash     string       `json:"wth"`
	// Hashes of other tokens in the request, which a Verifier does not get.
	Transaction json.RawMessage `json:"tth,omitempty"`
	Others      json.RawMessage `json:"oth,omitempty"`
}

// hashOf is the claim wth of a WIT-SVID.
func hashOf(wit ca.Token) string {
	sum := sha256.Sum256([]byte(wit.Reveal()))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Prove returns a proof of possession for one request: a Workload Proof Token
// (draft-ietf-wimse-wpt-02) that ends a minute after now. wit and key, a private JWK, are those of one
// WIT-SVID of the Workload API; the audience is the request's target URI without query and fragment, or
// what the recipient agreed on. In HTTP, the WIT-SVID is the field Workload-Identity-Token and the proof
// the credentials of the scheme WPT in the field Authorization. An error quotes neither key nor token.
func Prove(wit ca.Token, key []byte, audience string, now time.Time) (ca.Token, error) {
	private, err := proofKey(wit, key)
	if err != nil {
		return "", fmt.Errorf("failed to prove possession: %s", text.WithoutTokens(err.Error(), wit))
	}
	if audience == "" || len(audience) > maxAudience {
		return "", fmt.Errorf("failed to prove possession: the audience is not 1 to %d bytes", maxAudience)
	}
	ends := float64(now.Add(proofLife).Unix())
	return signProof(private, proofClaims{Audience: jws.Audience{audience}, Expiry: &ends, ID: rand.Text(), Hash: hashOf(wit)})
}

// proofKey returns the private key of a WIT-SVID.
func proofKey(wit ca.Token, key []byte) (private jose.JSONWebKey, err error) {
	parsed, err := kind.Parse(wit)
	if err != nil {
		return private, err
	}
	public, err := confirmed(parsed.UnverifiedPayload())
	if err != nil {
		return private, err
	}
	if json.Unmarshal(key, &private) != nil || private.IsPublic() || !pki.SameKey(private.Public().Key, public.Key) {
		return private, errors.New("the key is not the private JWK of the WIT-SVID")
	}
	private.Algorithm = public.Algorithm
	return private, nil
}

func signProof(key jose.JSONWebKey, claims proofClaims) (ca.Token, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key.Key}, (&jose.SignerOptions{}).WithType("wpt+jwt"))
	if err != nil {
		return "", fmt.Errorf("failed to prove possession: %w", err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("failed to prove possession: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("failed to prove possession: %w", err)
	}
	compact, err := signed.CompactSerialize()
	return ca.Token(compact), err
}

// readProof verifies a proof for a WIT-SVID with its key.
func readProof(proof ca.Token, key jose.JSONWebKey) (c proofClaims, times tokensource.Claims, err error) {
	parsed, err := proofKind.Parse(proof)
	switch {
	case err != nil:
		return c, times, err
	case parsed.Algorithm != key.Algorithm:
		return c, times, fmt.Errorf("its alg is %.64q, that of the WIT-SVID's key is %.64q", parsed.Algorithm, key.Algorithm)
	}
	payload, err := parsed.Payload([]jose.JSONWebKey{key})
	if err != nil {
		return c, times, errors.New("its signature does not verify with the WIT-SVID's key")
	}
	// This decoder is case-sensitive and rejects duplicate names.
	if err = json.Unmarshal(payload, &c); err == nil {
		err = json.Unmarshal(payload, &times)
	}
	if err != nil {
		return c, times, fmt.Errorf("its claims are malformed: %w", err)
	}
	return c, times, nil
}

// check judges the claims for a request with one WIT-SVID.
func (c proofClaims) check(wit ca.Token, audience string) error {
	switch {
	case len(c.Audience) != 1 || c.Audience[0] != audience:
		return fmt.Errorf("it is not for the audience %.256q alone", audience)
	case c.Hash != hashOf(wit):
		return errors.New("its claim wth is not the hash of the WIT-SVID")
	case c.ID == "" || len(c.ID) > maxID:
		return fmt.Errorf("its claim jti is not 1 to %d bytes", maxID)
	case c.Transaction != nil || c.Others != nil:
		return errors.New("it is bound to other tokens (tth, oth), which are not verified here")
	}
	return nil
}
