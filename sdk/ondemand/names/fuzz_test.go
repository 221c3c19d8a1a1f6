package names_test

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

// hostName is the syntax of RFC 1123, written another way than in the package.
var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// FuzzFold asks for names of any bytes: nothing outside DNS syntax passes, and what passes
// is folded once and for all.
func FuzzFold(f *testing.F) {
	for _, seed := range []string{
		"a.example.org", "A.example.org.", "xn--bcher-kva.example", "bücher.example", "1.2.3.4", "::1", "*.example.org", "a_b", "a\x00b", "", ".", "xn--a",
		strings.Repeat("a", 64), strings.Repeat("a.", 127),
	} {
		f.Add(seed)
	}
	every, err := names.New("**")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, asked string) {
		name, err := names.Fold(asked)
		if err != nil {
			if name != "" || asked != "" && len(asked) < 20 && len(asked) > 6 && strings.Contains(err.Error(), asked) {
				t.Errorf("%q: %q, %v", asked, name, err)
			}
			return
		}
		if !hostName.MatchString(name) || len(name) > 253 || !strings.EqualFold(strings.TrimSuffix(asked, "."), name) {
			t.Errorf("%q passes as %q", asked, name)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Errorf("the address %q passes", asked)
		}
		if again, err := names.Fold(name); again != name || err != nil {
			t.Errorf("%q becomes %q and then %q, %v", asked, name, again, err)
		}
		if _, ok := every.Match(name); !ok {
			t.Errorf("%q is not matched by **", name)
		}
	})
}

// FuzzPattern reads any patterns: an accepted one matches what its text describes.
func FuzzPattern(f *testing.F) {
	for _, seed := range []string{"a.example.org", "*.example.org", "**.example.org", "**", "*", "a.*.b", "xn--a", ""} {
		f.Add(seed, "a.example.org")
		f.Add(seed, "b.a.example.org")
	}
	f.Fuzz(func(t *testing.T, pattern, asked string) {
		p, err := names.New(pattern)
		if err != nil {
			return
		}
		name, err := names.Fold(asked)
		if err != nil {
			return
		}
		text := p.Strings()[0]
		_, ok := p.Match(name)
		if want := matches(text, name); ok != want {
			t.Errorf("%q (%q) and %q: %v, want %v", pattern, text, name, ok, want)
		}
	})
}

// matches is the meaning of a pattern, by a regular expression.
func matches(pattern, name string) bool {
	if pattern == "**" {
		return true
	}
	text := regexp.QuoteMeta(pattern)
	text = strings.Replace(text, `\*\*\.`, `.+\.`, 1)
	text = strings.Replace(text, `\*\.`, `[^.]+\.`, 1)
	return regexp.MustCompile("^" + text + "$").MatchString(name)
}
