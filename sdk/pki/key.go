package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// KeyType is a type of private key, as the configuration spells it. The zero value means
// [ECDSAP256].
type KeyType string

// The key types. Envoy 1.40 can use Ed25519 and ML-DSA; older releases cannot. A program that
// was built with Go 1.26, or with the FIPS 140-3 module v1.0.0, lacks ML-DSA (FIPS 204):
// [ParseKeyType] and [GenerateKey] then return an error.
const (
	ECDSAP256 KeyType = "ecdsa-p256"
	ECDSAP384 KeyType = "ecdsa-p384"
	RSA2048   KeyType = "rsa-2048"
	RSA3072   KeyType = "rsa-3072"
	RSA4096   KeyType = "rsa-4096"
	Ed25519   KeyType = "ed25519"
	MLDSA44   KeyType = "ml-dsa-44"
	MLDSA65   KeyType = "ml-dsa-65"
	MLDSA87   KeyType = "ml-dsa-87"
)

// KeyTypes lists all key types, the default first.
var KeyTypes = [...]KeyType{ECDSAP256, ECDSAP384, RSA2048, RSA3072, RSA4096, Ed25519, MLDSA44, MLDSA65, MLDSA87}

// ParseKeyType returns the key type with that name, one of [KeyTypes]; an empty name is
// the default. The error lists them, or explains why this build lacks one of them.
func ParseKeyType(name string) (KeyType, error) {
	if name == "" {
		return ECDSAP256, nil
	}
	switch t := KeyType(name); {
	case t.isMLDSA() && withoutMLDSA() != nil:
		return "", fmt.Errorf("key type %s is not available: %w", t, withoutMLDSA())
	case slices.Contains(KeyTypes[:], t):
		return t, nil
	}
	return "", fmt.Errorf("key type %.256q is not known: use one of %s", name, keyTypeNames())
}

// KeyTypeOf returns the type of a public key, or "" for one outside of [KeyTypes].
func KeyTypeOf(key crypto.PublicKey) KeyType {
	var t KeyType
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		t = KeyType("ecdsa-" + strings.ToLower(strings.ReplaceAll(key.Params().Name, "-", "")))
	case *rsa.PublicKey:
		t = KeyType(fmt.Sprintf("rsa-%d", key.N.BitLen()))
	case ed25519.PublicKey:
		t = Ed25519
	default:
		t = mldsaTypeOf(key)
	}
	if !slices.Contains(KeyTypes[:], t) {
		return ""
	}
	return t
}

func keyTypeNames() string {
	names := make([]string, len(KeyTypes))
	for i, t := range KeyTypes {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// GenerateKey makes a new private key from the system's random source. It rejects an
// unknown type, and one that this build lacks.
func GenerateKey(t KeyType) (crypto.Signer, error) {
	switch t {
	case ECDSAP256, "":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case ECDSAP384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case RSA2048:
		return rsa.GenerateKey(rand.Reader, 2048)
	case RSA3072:
		return rsa.GenerateKey(rand.Reader, 3072)
	case RSA4096:
		return rsa.GenerateKey(rand.Reader, 4096)
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	case MLDSA44, MLDSA65, MLDSA87:
		return generateMLDSA(t)
	}
	_, err := ParseKeyType(string(t))
	return nil, err
}

// EncodeKey returns the key as one PEM block "PRIVATE KEY" (PKCS #8, RFC 5958). It returns
// an error for a key that is not in memory, such as one in a PKCS #11 token.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("a key of type %T cannot be written as PKCS #8", key)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseKey parses the first private key of a text, unencrypted: PEM of PKCS #8, PKCS #1 or
// SEC 1. It skips certificates and the "EC PARAMETERS" that openssl writes, so the certificate
// may be in the same file. The error never quotes the input.
func ParseKey(pemBytes []byte) (crypto.Signer, error) {
	if len(pemBytes) > MaxPEM {
		return nil, fmt.Errorf("the key file has %d bytes, %d are allowed", len(pemBytes), MaxPEM)
	}
	skipped := ""
	for block, err := range Blocks(pemBytes) {
		if err != nil {
			return nil, err
		}
		if block.Type != ecParameters && block.Type != certificateBlock {
			return parseKeyBlock(block)
		}
		skipped = block.Type
	}
	if skipped != "" {
		return nil, fmt.Errorf("its PEM block is %q, not a private key", skipped)
	}
	return nil, errors.New("there is no PEM block in it")
}

// maxKey bounds a key in DER: 16,384-bit RSA takes 9.3 KiB. Parsing a key of a megabyte
// takes minutes, so a large one would be a denial of service.
const maxKey = 10 << 10

func parseKeyBlock(block *pem.Block) (crypto.Signer, error) {
	if len(block.Bytes) > maxKey {
		return nil, fmt.Errorf("its PEM block %.256q has %d bytes, a key has %d at most", block.Type, len(block.Bytes), maxKey)
	}
	if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return nil, errors.New("the key is encrypted; only unencrypted keys are read")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "OPENSSH PRIVATE KEY":
		return nil, errors.New("the key is in OpenSSH's own format; convert it with ssh-keygen -p -m PKCS8 -f FILE")
	default:
		return nil, fmt.Errorf("its PEM block is %.256q, not a private key", block.Type)
	}
	// Drop the parser's error: it may quote its input.
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		if hasMLDSA(block.Bytes) {
			return nil, unreadableMLDSA()
		}
		if reason := privateKeyRefusal(block.Bytes); reason != "" {
			return nil, fmt.Errorf("its PEM block %q %s", block.Type, reason)
		}
		return nil, fmt.Errorf("its PEM block %q holds no key that can sign", block.Type)
	}
	return signer, nil
}

// SameKey reports whether a and b are the same public key. It is false for types outside
// the standard library.
func SameKey(a, b crypto.PublicKey) bool {
	comparable, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && comparable.Equal(b)
}
