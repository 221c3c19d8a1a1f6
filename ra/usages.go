package ra

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Usages are the ends of a TLS connection that a certificate must serve. It may serve no other.
type Usages string

// The usages that a rule can demand.
const (
	AnyUsage Usages = ""       // server, client or both, as the authority decides
	Server   Usages = "server" // TLS server authentication alone
	Client   Usages = "client" // TLS client authentication alone
	Both     Usages = "both"
)

var allUsages = []Usages{AnyUsage, Server, Client, Both}

// check compares the leaf's extended key usages with those demanded (RFC 5280, section
// 4.2.1.12). A leaf without the extension is good for everything.
func (u Usages) check(leaf *x509.Certificate) error {
	if u == AnyUsage {
		return nil // pki.Check has seen that it fits TLS
	}
	server, client := usable(leaf, x509.ExtKeyUsageServerAuth), usable(leaf, x509.ExtKeyUsageClientAuth)
	if server != (u != Client) || client != (u != Server) {
		return &pki.CheckError{Check: "usage", Detail: fmt.Sprintf("the rule demands usage %q; the leaf is good for server %v, client %v", u, server, client)}
	}
	return nil
}

func usable(leaf *x509.Certificate, usage x509.ExtKeyUsage) bool {
	return len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 ||
		slices.Contains(leaf.ExtKeyUsage, usage) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// knownKeys are the key types that a rule may name; RSA has any size between these.
var knownKeys = []string{
	"ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "ed25519", "ml-dsa-44", "ml-dsa-65", "ml-dsa-87", "rsa-2048", "rsa-3072", "rsa-4096", "rsa-8192",
}

// keyType returns the type of a public key, such as "rsa-3072"; empty if keys of that type are not
// certified.
func keyType(key crypto.PublicKey) string {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		name := "ecdsa-" + strings.ToLower(strings.ReplaceAll(key.Params().Name, "-", ""))
		if slices.Contains(knownKeys, name) {
			return name
		}
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= 2048 && bits <= 8192 {
			return fmt.Sprintf("rsa-%d", bits)
		}
	default:
		return string(pki.KeyTypeOf(key))
	}
	return ""
}

// checkKey returns an error if a list does not allow the key; an empty list allows
// all that are certified.
func checkKey(key crypto.PublicKey, lists ...[]string) error {
	name := keyType(key)
	for _, allowed := range lists {
		if len(allowed) > 0 && !slices.Contains(allowed, name) {
			return about{ErrKeyType, fmt.Sprintf("a key of type %s is not certified: use one of %q", cmp.Or(name, fmt.Sprintf("%T and its size", key)), allowed)}
		}
	}
	if name == "" {
		return about{ErrKeyType, fmt.Sprintf("unsupported key type or size (%T): use ECDSA, Ed25519, ML-DSA, or RSA with 2048 to 8192 bits", key)}
	}
	return nil
}

// checkKeyTypes returns an error for a type that is not known.
func checkKeyTypes(types []string) error {
	for _, keyType := range types {
		if !slices.Contains(knownKeys, keyType) {
			return fmt.Errorf("the key type %.64q is not known: use some of %q", keyType, knownKeys)
		}
	}
	return nil
}
