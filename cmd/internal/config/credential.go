package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/internal/text"
)

// hidden stands for a value that is not shown.
const hidden = "(set)"

// visibility is what is known about a value that a provider gets.
type visibility struct {
	place reference.Place
	// known means that the provider has declared which of its settings are secret. Otherwise each
	// may be.
	known bool
}

func (s visibility) below(key string) visibility { return visibility{s.place.Below(key), s.known} }

// pass adds a provider's settings or variables.
func (e *explainer) pass(path string, value any, from string, see visibility) {
	above, _ := cutLast(path)
	if own := e.from(path, false); own != byDefault {
		from = own
	} else if from == e.config.place(above) {
		from = e.config.place(path)
	}
	if below, ok := value.(map[string]any); ok && len(below) > 0 && (e.bare || see.opens(path, value)) {
		for _, key := range slices.Sorted(maps.Keys(below)) {
			e.pass(join(path, key), below[key], from, see.below(key))
		}
		return
	}
	if !e.bare {
		see.known = see.known || e.config.public[path] == from
		value = see.revealed(path, value)
	}
	e.all = append(e.all, Explained{path, value, from})
}

// opens reports whether the entries of an object are shown one by one. Their names are not
// secret.
func (s visibility) opens(path string, value any) bool {
	if _, ok := s.reference(value); ok {
		return false
	}
	return !isCredential(path) || strings.HasSuffix(path, ".headers")
}

// reference returns what is shown of a secret given by reference.
func (s visibility) reference(value any) (shown map[string]any, ok bool) {
	if !s.known || !s.place.Secret() {
		return nil, false
	}
	return reference.Shown(value)
}

// revealed returns what may be shown of a value.
func (s visibility) revealed(path string, value any) any {
	if shown, ok := s.reference(value); ok {
		return shown
	}
	words, isText := value.(string)
	_, isSwitch := value.(bool)
	switch {
	case isSwitch, isText && words == "", value == nil:
		return value
	case !s.known, s.place.HasSecrets(), isCredential(path):
		return hidden
	case isText:
		return text.WithoutPassword(words)
	}
	return value
}

// isCredential reports whether a provider's value at that path may be one by its name: any
// variable, any header of its calls, and a setting whose author forgot to mark it.
func isCredential(path string) bool {
	_, rest, _ := strings.Cut(path, ".")
	for part := range strings.SplitSeq(rest, ".") {
		if part == "env" || part == "headers" {
			return true
		}
	}
	_, name := cutLast(strings.ToLower(path))
	if strings.HasSuffix(name, "_file") || strings.HasSuffix(name, "_type") {
		return false
	}
	for _, word := range []string{"token", "password", "passphrase", "secret", "credential", "key"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
