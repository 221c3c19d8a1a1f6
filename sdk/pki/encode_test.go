package pki_test

import (
	"bytes"
	"encoding/pem"
	"testing"

	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestBlocksAreEncodedAsTheStandardLibraryDoes(t *testing.T) {
	content := make([]byte, 200)
	for n := range content {
		content[n] = byte(n)
		got := pki.EncodeBlock("CERTIFICATE REQUEST", content[:n])
		if want := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: content[:n]}); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes:\n%s\nwant\n%s", n, got, want)
		}
	}
}
