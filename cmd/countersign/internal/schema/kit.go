package schema

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// WriteKit writes a kit file for the conformance suite: the settings that a provider requires with
// a placeholder, which the suite refuses, and all others as comments. Secret ones are references.
func WriteKit(w io.Writer, settings []Setting) error {
	var out kitText
	out.text.WriteString(kitBegins)
	if slices.ContainsFunc(settings, func(s Setting) bool { return s.Secret }) {
		out.text.WriteString(kitSecrets)
	}
	out.text.WriteString("settings:\n")
	out.entries(settings, level{indent: "  ", live: true})
	out.text.WriteString(kitEnds)
	_, err := io.WriteString(w, out.text.String())
	return err
}

const kitBegins = `# What only you know, for the conformance suite: your tests and "countersign provider test" read it.
# Every entry is optional; a check that lacks its entry is not run, and the report notes it once.
# "countersign provider kit BINARY" writes this file for the provider's settings.
`

const kitSecrets = `# Secret settings are references: {file: PATH}, {env: NAME} or {command: [PROGRAM, ARG]}. Keep the
# files out of git.
`

const kitEnds = `
# Once your CA signs:
# wrong_settings: {} # what Validate refuses
# identity: {spiffe_id: "spiffe://example.org/web"} # a name that it signs
# refused_identity: {spiffe_id: "spiffe://stranger.test/web"} # a name that it refuses
# fixed_lifetime: true # it decides how long a certificate lives
# token_ignored: true # it ignores tokens; leave out the rest
# token_required: true # it signs nothing without a token
# token_file: token # a valid one, and one that it refuses: keep both out of git
# refused_token_file: expired-token
`

type kitText struct{ text strings.Builder }

// level is where settings stand: below others.
type level struct {
	indent string
	live   bool // not in a comment
	secret bool
}

// entries writes settings of the same depth, each followed by what is below it.
func (k *kitText) entries(settings []Setting, at level) {
	for len(settings) > 0 {
		s, end := settings[0], 1
		for end < len(settings) && settings[end].depth > s.depth {
			end++
		}
		k.entry(s, settings[1:end], at)
		settings = settings[end:]
	}
}

func (k *kitText) entry(s Setting, below []Setting, at level) {
	at.secret = at.secret || s.Secret
	fmt.Fprintf(&k.text, "%s# %s\n", at.indent, s.comment(at))
	at.live = at.live && s.Required
	if below = s.alike(below); len(below) == 0 {
		k.line(at, yamlKey(s.key)+": "+s.value(at.secret))
		return
	}
	if at.live && !slices.ContainsFunc(below, func(b Setting) bool { return b.depth == s.depth+1 && b.Required }) {
		k.line(at, yamlKey(s.key)+": "+conformance.Placeholder) // any of what follows
		at.live = false
	} else {
		k.line(at, yamlKey(s.key)+":")
	}
	at.indent += "  "
	switch s.step(below[0]) {
	case inList:
		k.line(at, "-")
		at.indent += "  "
	case inMap:
		k.line(at, conformance.Placeholder+":")
		at.indent += "  "
	}
	k.entries(below, at)
}

func (k *kitText) line(at level, text string) {
	if !at.live {
		text = "# " + text
	}
	fmt.Fprintln(&k.text, at.indent+text)
}

// step returns how a setting is below this one: by its own name, inList or inMap.
func (s Setting) step(below Setting) string {
	rest := strings.TrimPrefix(below.Name, s.Name)
	for _, step := range []string{inList, inMap} {
		if strings.HasPrefix(rest, step+".") {
			return step
		}
	}
	return ""
}

// alike returns the settings below this one that can stand there together: a value is an object or
// a list.
func (s Setting) alike(below []Setting) []Setting {
	for i := range below {
		if s.step(below[i]) != s.step(below[0]) {
			return below[:i]
		}
	}
	return below
}

func (s Setting) comment(at level) string {
	kind := s.Type
	if s.Required && !at.live {
		kind += ", required"
	}
	if at.secret {
		kind += ", secret"
	}
	return strings.TrimSpace(fmt.Sprintf("(%s) %s", kind, s.about()))
}

// value is a placeholder or the default.
func (s Setting) value(secret bool) string {
	const reference = "{file: " + conformance.Placeholder + "}"
	switch {
	case secret && strings.HasPrefix(s.Type, "list of "):
		return "[" + reference + "]"
	case secret && strings.HasPrefix(s.Type, "map of "):
		return "{" + conformance.Placeholder + ": " + reference + "}"
	case secret && (s.Type == "any" || strings.Contains(s.Type, "string")):
		return reference
	case secret || s.Required || !json.Valid([]byte(s.Default)):
		return conformance.Placeholder
	}
	return string(s.Default)
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
