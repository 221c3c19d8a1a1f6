package certtest

import (
	"crypto/rsa"
	"math/big"
	"testing"
)

// CostlyKey is an RSA key of so many bits, without a private key: a forger needs none to
// make others check signatures with it.
func CostlyKey(bits, exponent int) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: exponent}
}

// Costly is a root (DER) with the key.
func Costly(tb testing.TB, key *rsa.PublicKey) []byte {
	tb.Helper()
	root := Root(tb)
	return root.Sign(tb, root.Cert, key).Raw
}
