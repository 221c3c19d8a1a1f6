package pattern

import "testing"

func TestStarMatchesAnyText(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"", "", true}, {"*", "", true}, {"a*", "a", true}, {"a*a", "a", false},
		{"a*b*c", "abc", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false}, {"*ab", "aab", true}, {"a*", "ba", false},
	} {
		if Like(c.pattern, c.text) != c.want {
			t.Errorf("%q and %q: got %t", c.pattern, c.text, !c.want)
		}
	}
}

func TestOnlyTrailingDoubleStarCrossesSegments(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a/*", "a/b", true}, {"a/*", "a/b/c", false}, {"a/*", "a", false}, {"a/**", "a/b/c", true}, {"a/**", "a", false},
		{"a/**/c", "a/b/c", true}, {"a/**/c", "a/b/b/c", false}, {"*/c", "b/c", true},
	} {
		if LikeParts(c.pattern, c.text) != c.want {
			t.Errorf("%q and %q: got %t", c.pattern, c.text, !c.want)
		}
	}
}

func FuzzPatterns(f *testing.F) {
	f.Add("a*b", "*b", "ab")
	f.Fuzz(func(t *testing.T, p, q, text string) {
		if Like(p, text) && Like(q, text) && !Meet(p, q) {
			t.Errorf("%q is like %q and %q, which do not meet", text, p, q)
		}
		if LikeParts(p, text) && LikeParts(q, text) && !MeetParts(p, q) {
			t.Errorf("%q is like %q and %q, whose parts do not meet", text, p, q)
		}
	})
}
