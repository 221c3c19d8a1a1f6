package folder

import "strings"

// like tells whether text is as the pattern says: * stands for any text, of none or
// more letters, everything else for itself.
func like(pattern, text string) bool {
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

// likeParts is like for what slashes divide: * stays within its part, and ** as the
// last part is one part or more.
func likeParts(pattern, text string) bool {
	patterns, texts := strings.Split(pattern, "/"), strings.Split(text, "/")
	for i, p := range patterns {
		if i >= len(texts) {
			return false
		}
		if p == "**" && i == len(patterns)-1 {
			return true
		}
		if !like(p, texts[i]) {
			return false
		}
	}
	return len(patterns) == len(texts)
}

// meet tells whether some text may be as both patterns say. It may say yes where there
// is none, and never no where there is one.
func meet(a, b string) bool {
	switch {
	case !strings.Contains(a, "*"):
		return like(b, a)
	case !strings.Contains(b, "*"):
		return like(a, b)
	}
	aFirst, _, _ := strings.Cut(a, "*")
	bFirst, _, _ := strings.Cut(b, "*")
	aLast, bLast := a[strings.LastIndex(a, "*")+1:], b[strings.LastIndex(b, "*")+1:]
	return (strings.HasPrefix(aFirst, bFirst) || strings.HasPrefix(bFirst, aFirst)) &&
		(strings.HasSuffix(aLast, bLast) || strings.HasSuffix(bLast, aLast))
}

// meetParts is meet for what slashes divide.
func meetParts(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range max(len(as), len(bs)) {
		if i >= len(as) || i >= len(bs) {
			return false
		}
		if as[i] == "**" && i == len(as)-1 || bs[i] == "**" && i == len(bs)-1 {
			return true
		}
		if !meet(as[i], bs[i]) {
			return false
		}
	}
	return true
}
