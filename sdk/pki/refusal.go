package pki

import (
	"cmp"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// outline is what can be read of a certificate that crypto/x509 refuses.
type outline struct {
	TBS struct {
		Version            int `asn1:"optional,explicit,default:0,tag:0"`
		Serial             *big.Int
		SignatureAlgorithm pkix.AlgorithmIdentifier
		Issuer             asn1.RawValue
		Validity           asn1.RawValue
		Subject            asn1.RawValue
		PublicKey          struct {
			Algorithm pkix.AlgorithmIdentifier
			Key       asn1.BitString
		}
	}
	Algorithm pkix.AlgorithmIdentifier
	Signature asn1.BitString
}

// refusal returns why crypto/x509 refuses a certificate, and whose it is. It follows the name of
// what was parsed.
func refusal(der []byte, err error) error {
	if lack := lacking(der); lack != nil {
		return lack
	}
	var cert outline
	if rest, malformed := asn1.Unmarshal(der, &cert); malformed != nil || len(rest) > 0 {
		return ErrMalformed
	}
	reason := cmp.Or(keyRefusal(cert.TBS.PublicKey.Algorithm),
		"is not accepted by Go's crypto/x509: "+text.Clean(strings.TrimPrefix(err.Error(), "x509: ")))
	return fmt.Errorf("%s (subject %s, issuer %s, serial %.64s)", reason, nameIn(cert.TBS.Subject), nameIn(cert.TBS.Issuer), cert.TBS.Serial.Text(16))
}

func nameIn(raw asn1.RawValue) string {
	var name pkix.RDNSequence
	if _, err := asn1.Unmarshal(raw.FullBytes, &name); err != nil {
		return "unreadable"
	}
	return fmt.Sprintf("%q", text.Clean(name.String()))
}

// Algorithms of keys that OpenSSL supports and Go does not, and curves (RFC 5639, SEC 2, RFC 8410).
var (
	oidEC       = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	foreignKeys = map[string]string{
		"1.2.840.10040.4.1":     "a DSA key",
		"1.2.840.113549.1.1.10": "an RSA-PSS key",
		"1.3.101.110":           "an X25519 key, which cannot sign",
		"1.3.101.111":           "an X448 key, which cannot sign",
		"1.3.101.113":           "an Ed448 key",
	}
	foreignCurves = map[string]string{
		"1.2.840.10045.3.1.1":   "P-192",
		"1.3.132.0.10":          "secp256k1",
		"1.3.36.3.3.2.8.1.1.7":  "brainpoolP256r1",
		"1.3.36.3.3.2.8.1.1.8":  "brainpoolP256t1",
		"1.3.36.3.3.2.8.1.1.11": "brainpoolP384r1",
		"1.3.36.3.3.2.8.1.1.12": "brainpoolP384t1",
		"1.3.36.3.3.2.8.1.1.13": "brainpoolP512r1",
		"1.3.36.3.3.2.8.1.1.14": "brainpoolP512t1",
		"1.2.156.10197.1.301":   "SM2",
	}
	goCurves = map[string]bool{"1.3.132.0.33": true, "1.2.840.10045.3.1.7": true, "1.3.132.0.34": true, "1.3.132.0.35": true}
)

// keyRefusal returns why Go cannot use a key of an algorithm; "" if it can, as far as the
// algorithm decides.
func keyRefusal(algorithm pkix.AlgorithmIdentifier) string {
	if name, ok := foreignKeys[algorithm.Algorithm.String()]; ok {
		return "has " + name + ", which Go does not support; use ECDSA, RSA or Ed25519"
	}
	if !algorithm.Algorithm.Equal(oidEC) {
		return ""
	}
	return curveRefusal(algorithm.Parameters)
}

func curveRefusal(parameters asn1.RawValue) string {
	var curve asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(parameters.FullBytes, &curve); err != nil {
		return "has a key with explicit curve parameters, which Go does not support; use a named curve, P-256 or P-384"
	}
	oid := curve.String()
	if goCurves[oid] {
		return ""
	}
	return fmt.Sprintf("has a key on the curve %s, which Go does not support; use P-256 or P-384", cmp.Or(foreignCurves[oid], oid))
}

// privateKeyRefusal returns why Go cannot use a private key, in DER of PKCS #8 or SEC 1. It
// reads nothing but the algorithm.
func privateKeyRefusal(der []byte) string {
	var pkcs8 struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.RawValue
	}
	if _, err := asn1.Unmarshal(der, &pkcs8); err == nil {
		return keyRefusal(pkcs8.Algorithm)
	}
	var sec1 struct {
		Version    int
		Key        asn1.RawValue
		Parameters asn1.RawValue `asn1:"optional"` // [0]
	}
	_, err := asn1.Unmarshal(der, &sec1)
	if in := sec1.Parameters; err == nil && in.Class == asn1.ClassContextSpecific && in.Tag == 0 {
		return curveRefusal(asn1.RawValue{FullBytes: in.Bytes})
	}
	return ""
}
