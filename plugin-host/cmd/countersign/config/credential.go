package config

import (
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// hidden stands for a value that is not shown.
const hidden = "(set)"

// revealed returns what may be shown of a value that a provider is told.
func revealed(path string, value any) any {
	words, isText := value.(string)
	_, isSwitch := value.(bool)
	switch {
	case isSwitch, isText && words == "", value == nil:
		return value
	case isCredential(path):
		return hidden
	case isText:
		return text.WithoutPassword(words)
	}
	return value
}

// isCredential tells whether what a provider is told at that path may be one: any
// variable, any header of its calls, and a setting by its name. What a setting is,
// only the provider's schema knows, and that is to be had from a running one.
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
