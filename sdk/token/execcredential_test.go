package token

import (
	"strings"
	"testing"
)

func FuzzExecCredential(f *testing.F) {
	f.Add(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"opaque","expirationTimestamp":"2030-01-02T03:04:05Z"}}`)
	f.Add(`{"kind":7}`)
	f.Fuzz(func(t *testing.T, output string) {
		got, err := parseExecCredential([]byte(output), "token command /x")
		switch {
		case err == nil && (got.Token == "" || faultOf([]byte(got.Token.Reveal())) != ""):
			t.Errorf("%q was taken: %q", output, got.Token.Reveal())
		case err != nil && (got.Token != "" || len(output) > 40 && strings.Contains(err.Error(), output)):
			t.Errorf("%q: %v", output, err)
		}
	})
}
