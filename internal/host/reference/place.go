// Package reference finds which settings of a provider are secret, and where their values
// come from. [SecretPaths] reads it from the JSON Schema of the settings; [Check] and
// [Resolver] handle a secret that the configuration gives by reference: {file: PATH},
// {env: NAME} or {command: [PROGRAM, ARG…]}.
//
// The plugin host resolves references before it sends the settings, and the conformance suite
// those of a kit; the configuration checks and hides them by the lock file's paths. Only a Resolver
// has state.
package reference

import (
	"slices"
	"strings"
)

// Paths are the secret settings of a provider: JSON Pointers (RFC 6901), in which * stands
// for any name or index. Everything below one is secret, too. Nil means unknown;
// an empty list means that no setting is secret.
type Paths []string

// Place is a setting, reached from the top by its names. It is a value; the zero Place is one
// without secrets.
type Place struct {
	rest   [][]string // what is left of each path that leads through here
	inside bool       // an end of a path is above
}

// Root returns the place of the settings as a whole.
func (p Paths) Root() Place {
	var root Place
	for _, path := range p {
		root.rest = append(root.rest, split(path))
	}
	return root
}

// Below returns the place of one entry of an object or list.
func (p Place) Below(name string) Place {
	next := Place{inside: p.Secret()}
	for _, rest := range p.rest {
		if len(rest) > 0 && (rest[0] == name || rest[0] == "*") {
			next.rest = append(next.rest, rest[1:])
		}
	}
	return next
}

// Secret reports whether the value there is secret as a whole.
func (p Place) Secret() bool { return p.inside || p.ends() }

// HasSecrets reports whether the value there is or holds a secret.
func (p Place) HasSecrets() bool { return p.inside || len(p.rest) > 0 }

// ends reports whether a path ends there: the value is a secret text, or a reference to one.
func (p Place) ends() bool {
	return slices.ContainsFunc(p.rest, func(rest []string) bool { return len(rest) == 0 })
}

// leads reports whether a path leads further.
func (p Place) leads() bool {
	return slices.ContainsFunc(p.rest, func(rest []string) bool { return len(rest) > 0 })
}

var (
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
)

func split(pointer string) []string {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, part := range parts {
		parts[i] = unescape.Replace(part)
	}
	return parts
}
