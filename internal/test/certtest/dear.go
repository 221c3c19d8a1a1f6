package certtest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
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
	der, err := x509.CreateCertificate(rand.Reader, root.Cert, root.Cert, key, root.Key)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}
