package pki

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// available are the key types that this build has; mldsa_go127_test.go checks that a build with
// ML-DSA has all.
// available returns the key types of this build; with -short, those that are fast to generate.
func available() (types []KeyType) {
	for _, t := range KeyTypes {
		missing := t.isMLDSA() && withoutMLDSA() != nil
		slow := testing.Short() && (t == RSA3072 || t == RSA4096)
		if !missing && !slow {
			types = append(types, t)
		}
	}
	return types
}

func testdata(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// mldsaKey is an ML-DSA-44 key in PKCS #8 with a private key of that tag (RFC 9881, section 6).
func mldsaKey(tag byte, size int) []byte {
	content := append([]byte{tag, byte(size)}, make([]byte, size)...)
	oid := []byte{0x30, 11, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 17}
	inner := append(append([]byte{2, 1, 0}, oid...), append([]byte{4, byte(len(content))}, content...)...)
	return append([]byte{0x30, byte(len(inner))}, inner...)
}

func TestTypeOfEachKeyIsKnown(t *testing.T) {
	for _, kind := range available() {
		key := mustKey(t, kind)
		if got := KeyTypeOf(key.Public()); got != kind {
			t.Errorf("got %q, want %q", got, kind)
		}
		text := mustEncode(t, key)
		if again, err := ParseKey(text); err != nil || !bytes.Equal(mustEncode(t, again), text) {
			t.Errorf("%s: read back as %T, %v", kind, again, err)
		}
	}
	if got := KeyTypeOf("none"); got != "" {
		t.Errorf("got %q for no key", got)
	}
}
