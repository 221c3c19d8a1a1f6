package jws

import (
	"crypto"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const (
	maxProofKey = 2 << 10 // an RSA key of 8,192 bits has 1,400
	// maxMember bounds the names and values of a proof key that an error quotes.
	maxMember = 32
)

// proofMembers are those of a proof key: those of a private key, or of a certificate, are not.
var proofMembers = []string{"kty", "alg", "crv", "x", "y", "n", "e"}

// ParseProofKey parses the key that a WIT-SVID confirms (its claim cnf.jwk), in JSON of at most 2,048
// bytes: the public key, of EC or RSA, and the algorithm of its proofs, one of [SVIDAlgorithms].
// Another member is an error. The key marshals to the same members.
func ParseProofKey(content []byte) (jose.JSONWebKey, error) {
	if n := len(content); n > maxProofKey {
		return jose.JSONWebKey{}, fmt.Errorf("invalid JWK: has %d bytes, %d are allowed", n, maxProofKey)
	}
	if err := checkMembers(content); err != nil {
		return jose.JSONWebKey{}, err
	}
	var key jose.JSONWebKey
	switch {
	case json.Unmarshal(content, &key) != nil || !Verifies(key):
		return jose.JSONWebKey{}, errors.New("invalid JWK: must be a public key of EC or of RSA with 2,048 to 8,192 bits")
	case !slices.Contains(SVIDAlgorithms, jose.SignatureAlgorithm(key.Algorithm)) || !fits(key, key.Algorithm):
		return jose.JSONWebKey{}, fmt.Errorf("invalid JWK: alg %.*q must be one of %v that fits the key", maxMember, key.Algorithm, SVIDAlgorithms)
	}
	return key, nil
}

// checkMembers allows no members but proofMembers: the parser skips those that it does not know.
func checkMembers(content []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(content, &members) != nil || members == nil {
		return errors.New("invalid JWK: not an object in JSON")
	}
	for name := range members {
		if !slices.Contains(proofMembers, name) {
			return fmt.Errorf("invalid JWK: has the member %.*q, only %v are allowed", maxMember, name, proofMembers)
		}
	}
	return nil
}

// SameKey reports whether two keys are the same, with the same algorithm.
func SameKey(a, b jose.JSONWebKey) bool {
	public, ok := a.Key.(interface{ Equal(crypto.PublicKey) bool })
	return ok && a.Algorithm == b.Algorithm && public.Equal(b.Key)
}
