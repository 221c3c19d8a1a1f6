//go:build go1.27 && !fips140v1.0

package pki

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"
)

func TestBuildWithMLDSAHasEachKeyType(t *testing.T) {
	for _, kind := range KeyTypes {
		if _, err := ParseKeyType(string(kind)); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseBundle(testdata(t, "ml-dsa-44-root.pem")); err != nil {
		t.Error(err)
	}
	if _, err := ParseCSR(testdata(t, "ml-dsa-44-csr.pem")); err != nil {
		t.Error(err)
	}
}

// openssl writes the seed and the key that is made of it, unless told otherwise.
func TestMLDSAKeyInOtherFormIsRefusedWithCommand(t *testing.T) {
	if _, err := ParseKey(block("PRIVATE KEY", mldsaKey(0x80, 32))); err != nil {
		t.Error(err)
	}
	for name, der := range map[string][]byte{"expanded": mldsaKey(4, 32), "both": mldsaKey(0x30, 32), "short": mldsaKey(0x80, 31)} {
		if _, err := ParseKey(block("PRIVATE KEY", der)); err == nil || !strings.Contains(err.Error(), "openssl pkey -provparam ml-dsa.output_formats=seed-only") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestChainsOfMixedKindsAreServed(t *testing.T) {
	for name, kinds := range map[string][]KeyType{
		"all ML-DSA":           {MLDSA65, MLDSA65, MLDSA44},
		"P-256 below ML-DSA":   {MLDSA65, ECDSAP256},
		"ML-DSA below P-384":   {ECDSAP384, MLDSA44},
		"RSA, ML-DSA, Ed25519": {RSA2048, MLDSA87, Ed25519},
		"the longest":          {MLDSA87, MLDSA87, MLDSA87, MLDSA87, MLDSA87, MLDSA87, MLDSA87, MLDSA87, MLDSA87, MLDSA87, MLDSA87},
	} {
		chain, check := chainOf(t, kinds)
		got, err := check.Chain(EncodeCertificates(chain))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Certificates) != len(kinds)-1 {
			t.Errorf("%s: %d certificates are served", name, len(got.Certificates))
		}
		der := slices.Clone(chain[0].Raw)
		der[len(der)-1] ^= 1
		forged, err := ParseCertificate(der)
		if err != nil {
			continue // of ECDSA's DER
		}
		if _, err := check.Chain(EncodeCertificates(append([]*x509.Certificate{forged}, chain[1:]...))); err == nil {
			t.Errorf("%s: a forged leaf is served", name)
		}
	}
}

// chainOf returns a chain of these keys, the root's first, and the check that it passes.
func chainOf(t *testing.T, kinds []KeyType) (chain []*x509.Certificate, check Check) {
	t.Helper()
	signer := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, kinds[0]))
	check = Check{Names: AnyName, Roots: NewBundle(signer.cert), Now: now}
	for i, kind := range kinds[1:] {
		template := caTemplate(strings.Repeat("i", i+1))
		if i == len(kinds)-2 {
			template = leafTemplate()
		}
		key := mustKey(t, kind)
		signer = signer.issue(t, template, key)
		chain, check.Key = append([]*x509.Certificate{signer.cert}, chain...), key.Public()
	}
	return chain, check
}

// A leaf and a CSR of the largest kind, so that a bound elsewhere can be compared with it.
func TestSizesOfLargestKind(t *testing.T) {
	id := mustIdentity(t, "spiffe://example.org/ns/shop/sa/web", nil, nil)
	for kind, want := range map[KeyType]int{ECDSAP256: 300, MLDSA44: 4_000, MLDSA65: 5_500, MLDSA87: 7_500} {
		csr, err := CreateCSR(mustKey(t, kind), id)
		if err != nil {
			t.Fatal(err)
		}
		der, _ := onlyBlock(csr, "CERTIFICATE REQUEST")
		if size := len(der); size > want || size < want/2 {
			t.Errorf("%s: a CSR of %d bytes, want about %d", kind, size, want)
		}
	}
}
