package text_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestTokensWithSharedPrefixAreReplacedWhole(t *testing.T) {
	const begin = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9."
	first, second := ca.Token(begin+"Zmlyc3Q.c2ln"), ca.Token(begin+"c2Vjb25k.bmF0dXJl")
	for foreign, want := range map[string]string{
		"not for " + second.Reveal() + ", nor " + first.Reveal() + ".": "not for (secret), nor (secret).",
		"begins with " + begin + " as all do":                          "begins with (secret) as all do",
		"no token at all\n":                                            `no token at all\n`,
	} {
		if got := text.Redact(foreign, first, second, ""); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestUnprintableTextIsEscapedAndCut(t *testing.T) {
	for foreign, want := range map[string]string{
		`a "quoted" word, C:\path`:             `a "quoted" word, C:\path`,
		"\x1b[2J\nforged":                      `\x1b[2J\nforged`,
		"\u202ebackwards\u200b":                `\u202ebackwards\u200b`,
		"not UTF-8: \xff":                      `not UTF-8: \xff`,
		strings.Repeat("x", 256):               strings.Repeat("x", 256),
		strings.Repeat("x", 257):               strings.Repeat("x", 253) + "…",
		strings.Repeat("x", 252) + "\n" + "yz": strings.Repeat("x", 252) + `\nyz`,
		strings.Repeat("ä", 200):               strings.Repeat("ä", 126) + "…",
	} {
		got := text.Clean(foreign)
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if again := text.Clean(got); again != got {
			t.Errorf("%q became %q", got, again)
		}
	}
}
