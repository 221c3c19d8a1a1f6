package schema

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// WriteKit writes a kit file for the conformance suite: the settings that a provider requires with
// a placeholder, which the suite refuses, and all others as comments.
func WriteKit(w io.Writer, settings []Setting) error {
	var out strings.Builder
	out.WriteString(kitBegins)
	writeEntries(&out, settings, "settings", false)
	if hasSecret(settings) {
		out.WriteString("\n# Secret settings are read from files. Keep those out of git.\n")
		writeEntries(&out, settings, "secret_files", true)
	}
	out.WriteString(kitEnds)
	_, err := io.WriteString(w, out.String())
	return err
}

const kitBegins = `# What only you know, for the conformance suite: "go test" and "countersign provider test" read it.
# Every entry is optional; a check that lacks its entry is not run, and the report says so once.
# "countersign provider kit BINARY" writes this file for the provider's settings.
`

const kitEnds = `
# Once your CA signs:
# wrong_settings: {} # what Validate refuses
# identity: {spiffe_id: "spiffe://example.org/web"} # a name that it signs
# refused_identity: {spiffe_id: "spiffe://stranger.test/web"} # a name that it refuses
# fixed_lifetime: true # it decides how long a certificate lives
# token_required: true # it signs nothing without a token
# token_file: token # a valid one, and one that it refuses: keep both out of git
# refused_token_file: expired-token
`

// writeEntries writes the secret or the other settings, each with its type and description.
func writeEntries(w io.Writer, settings []Setting, entry string, secret bool) {
	fmt.Fprintf(w, "%s:\n", entry)
	for _, s := range settings {
		if s.inKit() && s.Secret == secret {
			fmt.Fprintf(w, "  # %s\n  %s\n", s.comment(), s.line())
		}
	}
}

func hasSecret(settings []Setting) bool {
	return slices.ContainsFunc(settings, func(s Setting) bool { return s.Secret && s.inKit() })
}

// inKit reports whether a setting has a line: what is below another does not, as only the author
// knows how many there are.
func (s Setting) inKit() bool { return !strings.ContainsAny(s.Name, ".[*") }

func (s Setting) comment() string {
	return strings.TrimSpace(fmt.Sprintf("(%s) %s", s.Type, s.about()))
}

// line is the setting with a placeholder or its default.
func (s Setting) line() string {
	name := yamlKey(s.Name)
	switch {
	case s.Required:
		return name + ": " + conformance.Placeholder
	case s.Secret:
		return "# " + name + ": " + conformance.Placeholder
	}
	return "# " + name + ": " + cmp.Or(string(s.Default), conformance.Placeholder)
}

// yamlKey quotes a name that YAML would read as something else.
func yamlKey(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" && strings.Trim(name, "0123456789_-") != "" {
		switch strings.ToLower(name) {
		case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		default:
			return name
		}
	}
	return fmt.Sprintf("%q", name)
}
