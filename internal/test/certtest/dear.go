package certtest

import (
	"crypto/rsa"
	"math/big"
	"testing"
)

// DearKey is an RSA key of so many bits that nobody has: a forger needs no private key to
// make others check signatures with it.
func DearKey(bits, exponent int) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: exponent}
}

// Dear is a root (DER) with the key.
func Dear(tb testing.TB, key *rsa.PublicKey) []byte {
	tb.Helper()
	root := Root(tb)
	return root.Sign(tb, root.Cert, key).Raw
}
