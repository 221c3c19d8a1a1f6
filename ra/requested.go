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

func (t template) checkRequested() error {
	for i, p := range t.parts {
		switch {
		case p.attribute != "" || i == 0 && p.text == "*":
		case strings.Contains(p.text, "*"):
			return errors.New("'*' can only be the whole first label")
		case labelFault(p.text) != "":
			return fmt.Errorf("%.64q is no label: %s", p.text, labelFault(p.text))
		}
	}
	if len(t.parts) < 3 && t.parts[0].text == "*" {
		return errors.New("there must be two labels at least behind '*'")
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

// notAllowed returns why a name is not granted. No spelling of a rule grants the first two kinds.
func notAllowed(name string) string {
	switch {
	case strings.Contains(name, "*"):
		return "rules grant no wildcard names: ask for each name"
	case strings.Contains(name, "_"):
		return "rules grant no names with '_'"
	}
	return "the rule allows none like it"
}

func (t templates) allow(name string, s Subject) bool {
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if labelFault(label) != "" {
			return false
		}
	}
	for _, allowed := range t.requested {
		if len(name) <= maxAttribute && allowed.covers(labels, s) {
			return true
		}
	}
	return false
}

// covers reports whether labels, each of them valid, fill the template for a subject.
func (t template) covers(labels []string, s Subject) bool {
	if len(labels) != len(t.parts) {
		return false
	}
	for i, p := range t.parts {
		want := p.text
		if p.attribute != "" {
			want = attributes[p.attribute](s)
		}
		if want != labels[i] && p.text != "*" {
			return false
		}
	}
	return true
}
