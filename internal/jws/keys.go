package jws

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const (
	maxKeys    = 100
	minRSABits = 2048
	maxRSABits = 8192

	// WITUse is the parameter use of the keys of WIT-SVIDs (WIT-SVID, section 6.2).
	WITUse = "wit-svid"
)

// Keys are the public keys of an issuer.
type Keys []jose.JSONWebKey

// ParseKeys parses a JWK set (RFC 7517, section 5). As that section requires, it skips
// keys that cannot verify a signature; at least one must remain. Keys of WIT-SVIDs are skipped.
func ParseKeys(content []byte) (Keys, error) { return parseKeys(content, Usable) }

// ParseWITKeys is ParseKeys for WIT-SVIDs: it skips all keys but those with "use":"wit-svid".
func ParseWITKeys(content []byte) (Keys, error) {
	return parseKeys(content, func(key jose.JSONWebKey) bool { return key.Use == WITUse && Verifies(key) })
}

func parseKeys(content []byte, usable func(jose.JSONWebKey) bool) (Keys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, errors.New("not a JWK set in JSON")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("JWK set has %d keys, %d are allowed", len(set.Keys), maxKeys)
	}
	var keys Keys
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil && usable(key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("none of the %d keys in the JWK set is a public key for signatures", len(set.Keys))
	}
	return keys, nil
}

// Usable reports whether a key may verify signatures of JWTs: one whose use is signatures, JWT-SVIDs
// or not stated, and a public one, of RSA of a size that is neither weak nor dear.
func Usable(key jose.JSONWebKey) bool {
	return (key.Use == "" || key.Use == "sig" || key.Use == "jwt-svid") && Verifies(key)
}

// Verifies is Usable for a key of any use.
func Verifies(key jose.JSONWebKey) bool {
	// A private key is not reduced to its public part: publishing it compromised it.
	if !key.Valid() || !key.IsPublic() {
		return false
	}
	public, isRSA := key.Key.(*rsa.PublicKey)
	return !isRSA || public.N.BitLen() >= minRSABits && public.N.BitLen() <= maxRSABits && int64(public.E) <= math.MaxUint32
}

// Find returns the keys with that ID that fit the algorithm. A token without a key ID
// matches only if there is a single candidate.
func (k Keys) Find(id, algorithm string) []jose.JSONWebKey {
	var found []jose.JSONWebKey
	for _, key := range k {
		if (id == "" || key.KeyID == id) && fits(key, algorithm) {
			found = append(found, key)
		}
	}
	if id == "" && len(found) > 1 {
		return nil
	}
	return found
}

// fits reports whether a key is of the algorithm's family: the caller chooses the
// algorithm and must not choose how a key is used.
func fits(key jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return algorithm == "ES256" && public.Curve == elliptic.P256() ||
			algorithm == "ES384" && public.Curve == elliptic.P384() ||
			algorithm == "ES512" && public.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}
