package state

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// FuzzOpen feeds foreign files: none of them opens but as what was stored, and none ends
// the program.
func FuzzOpen(f *testing.F) {
	key := bytes.Repeat([]byte("0123456789abcdef"), 4)
	r := secret.Record{Identity: "spiffe://example.org/web", Authority: "ca", Content: []byte("content")}
	good, err := seal(key, "default", r, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(magic))
	f.Add([]byte(magic + "{}\n"))
	f.Add([]byte(magic + `{"record":"default"}` + "\n" + string(make([]byte, saltSize))))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := open(key, "default", file)
		if err == nil && (got.Identity != r.Identity || got.Authority != r.Authority || !bytes.Equal(got.Content, r.Content)) {
			t.Errorf("%q opens as %v", file, got)
		}
	})
}
