package names_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

var (
	label63 = strings.Repeat("a", 63)
	name253 = strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
)

func TestOnlyHostNamesInDNSSyntaxAreFolded(t *testing.T) {
	for asked, want := range map[string]string{
		"a.example.org":                    "a.example.org",
		"A.Example.ORG":                    "a.example.org",
		"a.example.org.":                   "a.example.org",
		"localhost":                        "localhost",
		"default":                          "default", // what a mapper asks for without SNI
		"3com.example":                     "3com.example",
		"a--b.example.org":                 "a--b.example.org",
		"r3---sn-4g5e.example.org":         "r3---sn-4g5e.example.org",
		"xn--bcher-kva.example":            "xn--bcher-kva.example",
		"XN--BCHER-KVA.example":            "xn--bcher-kva.example",
		"a.xn--p1ai":                       "a.xn--p1ai",
		label63 + ".example.org":           label63 + ".example.org",
		name253:                            name253,
		name253 + ".":                      name253,
		"1.2.3.4.example.org":              "1.2.3.4.example.org",
		"0xa.example.org":                  "0xa.example.org",
		"a.0xample":                        "a.0xample",
		strings.Repeat("a.", 126) + "b":    strings.Repeat("a.", 126) + "b",
		"www.gov.a.www.gov.a.example.test": "www.gov.a.www.gov.a.example.test",
	} {
		if got, err := names.Fold(asked); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", asked, got, err, want)
		}
	}
}

func TestOtherNamesAreRefused(t *testing.T) {
	for asked, want := range map[string]error{
		"":                            names.ErrEmpty,
		".":                           names.ErrEmpty,
		"..":                          names.ErrLabel,
		"a.example.org..":             names.ErrLabel,
		".example.org":                names.ErrLabel,
		"a..example.org":              names.ErrLabel,
		"-a.example.org":              names.ErrLabel,
		"a-.example.org":              names.ErrLabel,
		"a.example.-":                 names.ErrLabel,
		label63 + "a.example.org":     names.ErrLong,
		name253 + "b":                 names.ErrLong,
		name253 + "b.":                names.ErrLong,
		strings.Repeat("a.", 1<<20):   names.ErrLong,
		"a_b.example.org":             names.ErrCharacter,
		"_acme-challenge.example.org": names.ErrCharacter,
		"*.example.org":               names.ErrCharacter,
		"*":                           names.ErrCharacter,
		"a\x00.example.org":           names.ErrCharacter,
		"a.example.org\x00":           names.ErrCharacter,
		"a.example.org\n":             names.ErrCharacter,
		"a .example.org":              names.ErrCharacter,
		"a%2eexample.org":             names.ErrCharacter,
		"a/../b.example.org":          names.ErrCharacter,
		"a.example.org&domain=b":      names.ErrCharacter,
		"spiffe//example.org":         names.ErrCharacter,
		"bücher.example":              names.ErrCharacter,
		"a。example":                   names.ErrCharacter, // a dot of IDNA 2003
		"\u212a.example":              names.ErrCharacter, // the Kelvin sign, k in lower case
		"\xff.example":                names.ErrCharacter,
		"xn--.example":                names.ErrLabel,
		"xn--a.example":               names.ErrALabel,
		"xn--zzzzzzzzzz99999.example": names.ErrALabel,
		"xn--abc-.example":            names.ErrLabel,
		"192.0.2.1":                   names.ErrAddress,
		"192.0.2.1.":                  names.ErrAddress,
		"example.1":                   names.ErrAddress,
		"0x7f.0x1":                    names.ErrAddress,
		"0x":                          names.ErrAddress,
		"127.1":                       names.ErrAddress,
		"2001:db8::1":                 names.ErrAddress,
		"[2001:db8::1]":               names.ErrAddress,
		"a.example.org:443":           names.ErrAddress,
		"::":                          names.ErrAddress,
	} {
		if got, err := names.Fold(asked); got != "" || !errors.Is(err, want) {
			t.Errorf("%.80q: %q, %v; want %v", asked, got, err, want)
		}
	}
}

func TestMostSpecificPatternRanksHighest(t *testing.T) {
	// From the least to the most specific, for the name a.b.example.org.
	var last int
	for _, pattern := range []string{"**", "**.org", "**.example.org", "**.b.example.org", "*.b.example.org", "a.b.example.org"} {
		p := fixed(t, pattern)
		rank, ok := p.Match("a.b.example.org")
		if !ok || rank <= last {
			t.Errorf("%s: rank %d, %v, after %d", pattern, rank, ok, last)
		}
		last = rank
	}
	every := fixed(t, "**", "**.example.org", "*.b.example.org", "a.b.example.org")
	if rank, ok := every.Match("a.b.example.org"); !ok || rank != last {
		t.Errorf("of several patterns: rank %d, %v, want %d", rank, ok, last)
	}
}

func TestPatternMatchesItsNamesOnly(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no []string }{
		"a.example.org": {[]string{"a.example.org"}, []string{"example.org", "b.a.example.org", "xa.example.org"}},
		"*.example.org": {[]string{"a.example.org"}, []string{"example.org", "b.a.example.org", "a.xexample.org", "org"}},
		"**.example.org": {
			[]string{"a.example.org", "b.a.example.org", strings.Repeat("a.", 100) + "example.org"}, []string{"example.org", "a.xexample.org", "a.example.com"},
		},
		"**":         {[]string{"a.example.org", "localhost"}, nil},
		"*.org":      {[]string{"example.org"}, []string{"a.example.org", "org"}},
		"**.ORG.":    {[]string{"example.org", "a.example.org"}, []string{"org", "a.example.com"}},
		"*.xn--p1ai": {[]string{"a.xn--p1ai"}, []string{"xn--p1ai"}},
	} {
		p := fixed(t, pattern)
		for _, name := range c.yes {
			if _, ok := p.Match(name); !ok {
				t.Errorf("%s does not match %s", pattern, name)
			}
		}
		for _, name := range c.no {
			if _, ok := p.Match(name); ok {
				t.Errorf("%s matches %s", pattern, name)
			}
		}
	}
	if _, ok := fixed(t).Match("a.example.org"); ok {
		t.Error("no pattern matches a name")
	}
}

func TestInvalidPatternIsRefused(t *testing.T) {
	for pattern, says := range map[string]string{
		"": "empty", "*": "wildcard", "*.*.example.org": "wildcard", "a*.example.org": "wildcard", "***": "wildcard", "**.": "empty", "*.": "empty",
		"a.*.example.org": "wildcard", "bücher.example": "A-labels", "*.192.0.2.1": "IP address", "*._tcp.example.org": "only letters",
		"https://example.org": "IP address", "**.**": "wildcard",
	} {
		if _, err := names.New("a.example.org", pattern); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", pattern, err, says)
		}
	}
}

func TestPatternOfTwoSetsIsAnOverlap(t *testing.T) {
	a := fixed(t, "*.example.org", "**.shop.example.org", "a.example.org")
	for pattern, want := range map[string]string{
		"*.Example.org": "*.example.org", "**.shop.example.org.": "**.shop.example.org", "a.example.org": "a.example.org",
		"**.example.org": "", "*.shop.example.org": "", "b.example.org": "", "**": "", "example.org": "",
	} {
		if got, ok := a.Overlap(fixed(t, "z.example.org", pattern)); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", pattern, got, ok, want)
		}
	}
	if got := strings.Join(a.Strings(), " "); got != "**.shop.example.org *.example.org a.example.org" {
		t.Error(got)
	}
}

func TestMatchOfNameWithManyLabelsAllocatesNothing(t *testing.T) {
	p := fixed(t, "**.example.org", "*.shop.example.org", "a.example.org")
	name := strings.Repeat("a.", 120) + "example.com"
	if n := testing.AllocsPerRun(100, func() {
		folded, err := names.Fold(name)
		if _, ok := p.Match(folded); ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func fixed(t *testing.T, patterns ...string) *names.Patterns {
	t.Helper()
	p, err := names.New(patterns...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func BenchmarkRefusal(b *testing.B) {
	p, err := names.New("**.example.org", "*.shop.example.com")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		name, err := names.Fold("Www.Some-Random-Name.Example.Net")
		if _, ok := p.Match(name); ok || err != nil {
			b.Fatal(err)
		}
	}
}
