package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"strings"
	"sync"
	"testing"
)

func TestEveryKeyTypeMakesCSRWithIdentity(t *testing.T) {
	id := mustIdentity(t, "spiffe://example.org/web", []string{"web.example"}, []string{"10.0.0.1", "2001:db8::1"})
	for _, kind := range available() {
		t.Run(string(kind), func(t *testing.T) {
			key := mustKey(t, kind)
			text, err := CreateCSR(key, id)
			if err != nil {
				t.Fatal(err)
			}
			csr, err := ParseCSR(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := IdentityOfCSR(csr); err != nil || !got.Equal(id) {
				t.Errorf("got %v, %v; want %v", got, err, id)
			}
			if len(csr.Subject.Names) != 0 || len(csr.Extensions) != 1 || !csr.Extensions[0].Critical {
				t.Errorf("subject %v, extensions %v: want none and one critical", csr.Subject, csr.Extensions)
			}
			if !SameKey(csr.PublicKey, key.Public()) {
				t.Error("the request is for another key")
			}
		})
	}
}

// What istiod's registration authority looks at: any byte more, and it refuses.
func TestSPIFFEOnlyCSRHasOneCriticalURIAndEmptySubject(t *testing.T) {
	const id = "spiffe://example.org/ns/shop/sa/web"
	for _, kind := range available() {
		text, err := CreateCSR(mustKey(t, kind), mustIdentity(t, id, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		csr, err := ParseCSR(text)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(csr.RawSubject, []byte{0x30, 0}) {
			t.Errorf("%s: the subject is %x", kind, csr.RawSubject)
		}
		if len(csr.Extensions) != 1 || !csr.Extensions[0].Critical || csr.Extensions[0].Id.String() != "2.5.29.17" {
			t.Fatalf("%s: the extensions are %v", kind, csr.Extensions)
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(csr.Extensions[0].Value, &names); err != nil || len(rest) > 0 {
			t.Fatalf("%s: %d bytes are left, %v", kind, len(rest), err)
		}
		if len(names) != 1 || names[0].Class != asn1.ClassContextSpecific || names[0].Tag != 6 || string(names[0].Bytes) != id {
			t.Errorf("%s: the names are %v", kind, names)
		}
	}
}

func TestCSRWithoutNameIsRefused(t *testing.T) {
	if _, err := CreateCSR(mustKey(t, ""), Identity{}); err == nil {
		t.Error("got a request without a name")
	}
}

func TestCSRWithBrokenSignatureIsRefused(t *testing.T) {
	text, _ := CreateCSR(mustKey(t, ""), mustIdentity(t, "spiffe://example.org/web", nil, nil))
	block, _ := pem.Decode(text)
	block.Bytes[len(block.Bytes)-1] ^= 1
	if _, err := ParseCSR(pem.EncodeToMemory(block)); err == nil || !strings.Contains(err.Error(), "signature") {
		t.Errorf("got %v, want an error about the signature", err)
	}
}

func TestKeysAreReadInEveryForm(t *testing.T) {
	ec, rsaKey := mustKey(t, ECDSAP256).(*ecdsa.PrivateKey), mustKey(t, RSA2048).(*rsa.PrivateKey)
	sec1, _ := x509.MarshalECPrivateKey(ec)
	curve, _ := asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7})
	sec1PEM := block("EC PRIVATE KEY", sec1)
	for name, c := range map[string]struct {
		text []byte
		want crypto.Signer
	}{
		"SEC 1":            {sec1PEM, ec},
		"SEC 1 of openssl": {append(block("EC PARAMETERS", curve), sec1PEM...), ec},
		"PKCS #1":          {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), rsaKey},
		"PKCS #8":          {mustEncode(t, ec), ec},
	} {
		if got, err := ParseKey(c.text); err != nil || !SameKey(got.Public(), c.want.Public()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnreadableKeyIsNotQuoted(t *testing.T) {
	const secret = "c2VjcmV0IGtleSBieXRlcw=="
	for name, text := range map[string]string{
		"no PEM":      secret,
		"certificate": "-----BEGIN CERTIFICATE-----\n" + secret + "\n-----END CERTIFICATE-----\n",
		"garbage":     "-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n",
		"encrypted":   "-----BEGIN ENCRYPTED PRIVATE KEY-----\n" + secret + "\n-----END ENCRYPTED PRIVATE KEY-----\n",
		"too large":   strings.Repeat("x", MaxPEM+1),
	} {
		_, err := ParseKey([]byte(text))
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// RSA with a modulus of a megabyte would be read for minutes.
func TestOversizedKeyIsNotRead(t *testing.T) {
	for size, want := range map[int]string{maxKey: "holds no key that can sign", maxKey + 1: "has 10241 bytes, a key has 10240 at most"} {
		if _, err := ParseKey(block("RSA PRIVATE KEY", make([]byte, size))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestUnknownKeyTypeListsKnownOnes(t *testing.T) {
	if _, err := ParseKeyType("rsa-1024"); err == nil || !strings.Contains(err.Error(), "rsa-2048") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if certs, err := ParseCertificates(text); err == nil {
			again, err := ParseCertificates(EncodeCertificates(certs))
			if err != nil || len(again) != len(certs) {
				t.Errorf("%d certificates became %d, %v", len(certs), len(again), err)
			}
		}
		if b, err := ParseBundle(text); err == nil && !bytes.Equal(b.PEM(), b.Union(b).PEM()) {
			t.Error("a bundle united with itself is another")
		}
		_, _ = ParseKey(text)
		_, _ = ParseCSR(text)
	})
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// rsaKeys generates each RSA key once, as 4,096 bits take a second or more.
var rsaKeys = map[KeyType]func() (crypto.Signer, error){
	RSA2048: sync.OnceValues(func() (crypto.Signer, error) { return GenerateKey(RSA2048) }),
	RSA3072: sync.OnceValues(func() (crypto.Signer, error) { return GenerateKey(RSA3072) }),
	RSA4096: sync.OnceValues(func() (crypto.Signer, error) { return GenerateKey(RSA4096) }),
}

// mustKey returns a new key, except that RSA keys are shared by all tests.
func mustKey(t testing.TB, kind KeyType) crypto.Signer {
	t.Helper()
	generate := rsaKeys[kind]
	if generate == nil {
		generate = func() (crypto.Signer, error) { return GenerateKey(kind) }
	}
	key, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustEncode(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	text, err := EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
