// Package pattern matches text against patterns with * wildcards and reports whether
// two patterns can match the same text.
package pattern

import "strings"

// Like reports whether text matches the pattern: * matches any text, also the empty
// one; every other character matches itself.
func Like(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(text, part)
		}
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(part):], more
	}
}

// LikeParts is [Like] for slash-separated text: * matches within one segment, and ** as
// the last segment matches one or more segments.
func LikeParts(pattern, text string) bool {
	patterns, texts := strings.Split(pattern, "/"), strings.Split(text, "/")
	for i, p := range patterns {
		if i >= len(texts) {
			return false
		}
		if p == "**" && i == len(patterns)-1 {
			return true
		}
		if !Like(p, texts[i]) {
			return false
		}
	}
	return len(patterns) == len(texts)
}

// Meet reports whether some text may match both patterns. It may return true if there
// is none, but never false if there is one.
func Meet(a, b string) bool {
	switch {
	case !strings.Contains(a, "*"):
		return Like(b, a)
	case !strings.Contains(b, "*"):
		return Like(a, b)
	}
	aFirst, _, _ := strings.Cut(a, "*")
	bFirst, _, _ := strings.Cut(b, "*")
	aLast, bLast := a[strings.LastIndex(a, "*")+1:], b[strings.LastIndex(b, "*")+1:]
	return (strings.HasPrefix(aFirst, bFirst) || strings.HasPrefix(bFirst, aFirst)) &&
		(strings.HasSuffix(aLast, bLast) || strings.HasSuffix(bLast, aLast))
}

// MeetParts is [Meet] for slash-separated text.
func MeetParts(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range max(len(as), len(bs)) {
		if i >= len(as) || i >= len(bs) {
			return false
		}
		if as[i] == "**" && i == len(as)-1 || bs[i] == "**" && i == len(bs)-1 {
			return true
		}
		if !Meet(as[i], bs[i]) {
			return false
		}
	}
	return true
}
