package ra

import (
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxRequested bounds the names that one request asks for.
const maxRequested = 32

func parseRequested(texts []string) (all []template, err error) {
	for _, text := range texts {
		t, err := parseDNS(text)
		if err != nil {
			return nil, err
		}
		if err := t.checkRequested(); err != nil {
			return nil, fmt.Errorf("the template %.256q: %w", text, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// The first label of a pattern may be one of these.
const (
	anyLabel = "*"   // one label of any text
	wildcard = "[*]" // the label '*' itself, so that the name is a wildcard name
)

func (t template) checkRequested() error {
	first := t.parts[0].text
	for i, p := range t.parts {
		written := strings.TrimPrefix(p.text, "_") // as in _acme-challenge
		switch {
		case p.attribute != "" || i == 0 && (first == anyLabel || first == wildcard):
		case strings.Contains(p.text, "*"):
			return errors.New("'*' or '[*]' can only be the whole first label")
		case labelFault(written) != "":
			return fmt.Errorf("the label %.64q is invalid: %s", p.text, labelFault(written))
		}
	}
	if len(t.parts) < 3 && (first == anyLabel || first == wildcard) {
		return fmt.Errorf("there must be two labels at least behind '%s'", first)
	}
	return nil
}

// with returns the names for a subject and those that it asks for, which must all be allowed.
func (t templates) with(asked []string, s Subject) (pki.Identity, error) {
	if len(asked) > maxRequested {
		return pki.Identity{}, about{ErrNames, fmt.Sprintf("%d DNS names are asked for, %d are allowed", len(asked), maxRequested)}
	}
	for _, name := range asked {
		if !t.allow(name, s) {
			return pki.Identity{}, about{ErrNames, fmt.Sprintf("the DNS name %.256q is asked for, and %s", name, notAllowed(name))}
		}
	}
	return t.fill(s, asked...)
}

// notAllowed returns why a name is not granted. '*' in a pattern covers neither of the first two kinds.
func notAllowed(name string) string {
	switch {
	case strings.Contains(name, "*"):
		return "the rule allows no such wildcard name: '[*]' as the first label of a pattern would"
	case strings.Contains(name, "_"):
		return "the rule allows no such name with '_': a pattern would have to spell the label out"
	}
	return "the rule allows none like it"
}

func (t templates) allow(name string, s Subject) bool {
	labels := strings.Split(name, ".")
	for _, allowed := range t.requested {
		if len(name) <= maxAttribute && allowed.covers(labels, s) {
			return true
		}
	}
	return false
}

// covers reports whether labels fill the template for a subject.
func (t template) covers(labels []string, s Subject) bool {
	if len(labels) != len(t.parts) {
		return false
	}
	for i, p := range t.parts {
		if !p.covers(labels[i], s) {
			return false
		}
	}
	return true
}

func (p part) covers(label string, s Subject) bool {
	switch {
	case p.attribute != "":
		return label == attributes[p.attribute](s) && labelFault(label) == ""
	case p.text == anyLabel:
		return labelFault(label) == ""
	case p.text == wildcard:
		return label == "*"
	}
	return label == p.text
}
