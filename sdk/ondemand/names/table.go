package names

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kind is how a pattern extends its suffix.
type kind uint8

// The kinds, the less specific first.
const (
	anyDepth kind = 1 << iota // "**.example.org": one label before it, or more
	oneLabel                  // "*.example.org": one label before it
	exact                     // "example.org"
)

const (
	anyPrefix = "**."
	onePrefix = "*."
	// all matches every name.
	all = "**"
)

// table is a set of patterns: their kinds by suffix. The pattern "**" has an empty suffix.
type table map[string]kind

// parse returns the suffix and kind of a pattern.
func parse(pattern string) (suffix string, k kind, err error) {
	if pattern == all {
		return "", anyDepth, nil
	}
	suffix, k = pattern, exact
	if rest, ok := strings.CutPrefix(pattern, anyPrefix); ok {
		suffix, k = rest, anyDepth
	} else if rest, ok := strings.CutPrefix(pattern, onePrefix); ok {
		suffix, k = rest, oneLabel
	}
	if strings.Contains(suffix, "*") {
		return "", 0, errWildcard
	}
	suffix, err = Fold(suffix)
	return suffix, k, err
}

var errWildcard = fmt.Errorf("invalid wildcard: write %q before a name for one label, %q for one or more, or %q alone", onePrefix, anyPrefix, all)

// add adds a pattern; one that is there twice counts once.
func (t table) add(pattern string) error {
	suffix, k, err := parse(pattern)
	if err != nil {
		return err
	}
	t[suffix] |= k
	return nil
}

// match returns the rank of the most specific pattern that matches a folded name.
func (t table) match(name string) (rank int, ok bool) {
	if t[name]&exact != 0 {
		return rankOf(name, exact), true
	}
	_, rest, more := strings.Cut(name, ".")
	if more && t[rest]&oneLabel != 0 {
		return rankOf(rest, oneLabel), true
	}
	for ; more; _, rest, more = strings.Cut(rest, ".") {
		if t[rest]&anyDepth != 0 {
			return rankOf(rest, anyDepth), true
		}
	}
	return rankOf("", anyDepth), t[""]&anyDepth != 0
}

// rankOf ranks by the number of labels that are given, then by kind. So patterns of the same
// rank that match the same name are the same pattern.
func rankOf(suffix string, k kind) int {
	if suffix == "" {
		return int(anyDepth)
	}
	return (strings.Count(suffix, ".")+1)*int(2*exact) + int(k)
}

// patterns returns the patterns as text, sorted.
func (t table) patterns() []string {
	var texts []string
	for suffix, kinds := range t {
		for _, k := range []kind{exact, oneLabel, anyDepth} {
			if kinds&k != 0 {
				texts = append(texts, textOf(suffix, k))
			}
		}
	}
	slices.Sort(texts)
	return texts
}

func textOf(suffix string, k kind) string {
	switch {
	case suffix == "":
		return all
	case k == exact:
		return suffix
	case k == oneLabel:
		return onePrefix + suffix
	}
	return anyPrefix + suffix
}

// shared returns a pattern that is in both, the first in order.
func (t table) shared(other table) (pattern string, ok bool) {
	for _, suffix := range slices.Sorted(maps.Keys(t)) {
		for _, k := range []kind{exact, oneLabel, anyDepth} {
			if t[suffix]&other[suffix]&k != 0 {
				return textOf(suffix, k), true
			}
		}
	}
	return "", false
}

// newTable returns the table of some patterns.
func newTable(patterns []string) (table, error) {
	t := make(table, len(patterns))
	for _, pattern := range patterns {
		if err := t.add(pattern); err != nil {
			return nil, fmt.Errorf("pattern %.256q: %w", pattern, err)
		}
	}
	return t, nil
}

// readTable reads a file with a pattern in each line. Empty lines, and lines that begin with #,
// are skipped. Its error has none of the content: the file may be another one than was meant.
func readTable(content string) (table, error) {
	t := make(table, strings.Count(content, "\n")+1)
	number := 0
	for line := range strings.SplitSeq(content, "\n") {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := t.add(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(t) == 0 && strings.TrimSpace(content) == "" {
		return nil, errEmptyFile
	}
	return t, nil
}

// errEmptyFile is an error, as an editor or a full disk leaves an empty file behind. A file that
// allows nothing has a comment line.
var errEmptyFile = errors.New("it is empty: write a comment line that begins with # if no name is allowed")
