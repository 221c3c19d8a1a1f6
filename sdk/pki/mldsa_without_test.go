//go:build !go1.27 || fips140v1.0

package pki

import (
	"crypto/fips140"
	"runtime"
	"strings"
	"testing"
)

func TestBuildWithoutMLDSARefusesItWithReason(t *testing.T) {
	reason := "built with " + runtime.Version() + ", which has no ML-DSA"
	if strings.HasPrefix(fips140.Version(), "v1.0.") {
		reason = "built with the FIPS 140-3 module " + fips140.Version() + ", which has no ML-DSA"
	}
	_, parsed := ParseKeyType("ml-dsa-65")
	_, generated := GenerateKey(MLDSA87)
	_, root := ParseBundle(testdata(t, "ml-dsa-44-root.pem"))
	_, csr := ParseCSR(testdata(t, "ml-dsa-44-csr.pem"))
	_, key := ParseKey(block("PRIVATE KEY", mldsaKey(0x80, 32)))
	for what, err := range map[string]error{"ParseKeyType": parsed, "GenerateKey": generated, "ParseBundle": root, "ParseCSR": csr, "ParseKey": key} {
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v, want %q", what, err, reason)
		}
	}
}
