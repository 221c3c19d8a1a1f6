package text_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestTokensOfOneIssuerAreReplacedWhole(t *testing.T) {
	const begin = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9."
	first, second := ca.Token(begin+"Zmlyc3Q.c2ln"), ca.Token(begin+"c2Vjb25k.bmF0dXJl")
	for foreign, want := range map[string]string{
		"not for " + second.Reveal() + ", nor " + first.Reveal() + ".": "not for (token), nor (token).",
		"begins with " + begin + " as all do":                          "begins with (token) as all do",
		"no token at all\n":                                            `no token at all\n`,
	} {
		if got := text.Clean(foreign, first, second, ""); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := text.Clean(strings.Repeat("x", 300)); len(got) > 256 || !strings.HasSuffix(got, "…") {
		t.Errorf("got %d bytes, %q", len(got), got)
	}
}
