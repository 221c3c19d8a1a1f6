package ra

import (
	"fmt"
	"slices"
	"strings"
)

// Match selects the subjects of a rule. A subject must fit each list that has entries; an entry is
// a value, or a pattern with one '*' for any text. An attribute that a subject does not
// have fits nothing.
type Match struct {
	// Doors are the names of the doors that the request came through. Default: any.
	Doors []string
	// Kinds are the kinds of subjects. Default: any.
	Kinds []Kind
	// Clusters are the names of clusters; "*" is any. Default: the home cluster alone.
	Clusters []string
	// Namespaces, ServiceAccounts, Pods, Nodes and Users are names. Default: any.
	Namespaces, ServiceAccounts, Pods, Nodes, Users []string
}

// list is one list of a Match, with the attribute that it is about.
type list struct {
	attribute string
	patterns  []string
}

// matcher is a checked Match, without its empty lists.
type matcher struct {
	doors []string
	kinds []Kind
	lists []list
}

func newMatcher(m Match) (matcher, error) {
	out := matcher{doors: slices.Clone(m.Doors), kinds: slices.Clone(m.Kinds)}
	for _, kind := range m.Kinds {
		if !slices.Contains(kinds, kind) {
			return out, fmt.Errorf("the kind %.64q is not known: use one of %q", kind, kinds)
		}
	}
	for _, l := range []list{
		{"cluster", m.Clusters}, {"namespace", m.Namespaces}, {"serviceAccount", m.ServiceAccounts},
		{"pod", m.Pods}, {"node", m.Nodes}, {"user", m.Users},
	} {
		if err := l.check(); err != nil {
			return out, err
		}
		if len(l.patterns) > 0 {
			out.lists = append(out.lists, list{l.attribute, slices.Clone(l.patterns)})
		}
	}
	return out, nil
}

func (l list) check() error {
	for _, pattern := range l.patterns {
		if pattern == "" || strings.Count(pattern, "*") > 1 {
			return fmt.Errorf("the %s %.256q is an invalid pattern: at most one '*' is allowed", l.attribute, pattern)
		}
	}
	return nil
}

// matches reports whether the rule is for a subject at a door.
func (m matcher) matches(s Subject, door string) bool {
	return (len(m.doors) == 0 || slices.Contains(m.doors, door)) &&
		(len(m.kinds) == 0 || slices.Contains(m.kinds, s.Kind)) &&
		!slices.ContainsFunc(m.lists, func(l list) bool { return !l.fits(s) })
}

// why returns why a subject at a door does not match.
func (m matcher) why(s Subject, door string) string {
	switch {
	case len(m.doors) > 0 && !slices.Contains(m.doors, door):
		return fmt.Sprintf("it is for the doors %q, not %q", m.doors, door)
	case len(m.kinds) > 0 && !slices.Contains(m.kinds, s.Kind):
		return fmt.Sprintf("it is for subjects of kind %q, not %q", m.kinds, s.Kind)
	}
	for _, l := range m.lists {
		if !l.fits(s) {
			return fmt.Sprintf("it is for the %s %q, not %q", l.attribute, l.patterns, attributes[l.attribute](s))
		}
	}
	return ""
}

func (l list) fits(s Subject) bool {
	value := attributes[l.attribute](s)
	return slices.ContainsFunc(l.patterns, func(pattern string) bool { return fitsPattern(pattern, value) })
}

func fitsPattern(pattern, value string) bool {
	before, after, wild := strings.Cut(pattern, "*")
	switch {
	case value == "":
		return false
	case !wild:
		return pattern == value
	}
	return len(value) >= len(before)+len(after) && strings.HasPrefix(value, before) && strings.HasSuffix(value, after)
}
