package reference

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// reference is the source of a secret. Exactly one field is set.
type reference struct {
	file, env string
	command   []string
}

// Shown returns a valid reference as it may be shown: without the arguments of a command,
// which may be secret. ok is false for anything else.
func Shown(value any) (shown map[string]any, ok bool) {
	ref, err := parse(value)
	switch {
	case err != nil:
		return nil, false
	case ref.file != "":
		return map[string]any{"file": ref.file}, true
	case ref.env != "":
		return map[string]any{"env": ref.env}, true
	}
	return map[string]any{"command": ref.command[:1]}, true
}

const allowed = "write the text itself, or {file: PATH}, {env: NAME} or {command: [PROGRAM, ARG…]}"

// parse reads a reference. The error lists what is allowed and quotes no argument of a command.
func parse(value any) (ref reference, err error) {
	object, ok := value.(map[string]any)
	if !ok {
		return ref, errors.New(allowed)
	}
	names := slices.Sorted(maps.Keys(object))
	if len(names) != 1 {
		return ref, fmt.Errorf("has %d entries: %s", len(names), allowed)
	}
	var isText bool
	switch value := object[names[0]]; names[0] {
	case "file":
		ref.file, isText = value.(string)
	case "env":
		ref.env, isText = value.(string)
	case "command":
		return commandOf(value)
	default:
		return ref, fmt.Errorf("has %s: %s", text.Quote(names[0]), allowed)
	}
	if !isText || ref.file+ref.env == "" || strings.ContainsAny(ref.file+ref.env, "\x00") || strings.Contains(ref.env, "=") {
		return ref, fmt.Errorf("%s is empty or no text: %s", names[0], allowed)
	}
	return ref, nil
}

func commandOf(value any) (ref reference, err error) {
	args, _ := value.([]any)
	for _, arg := range args {
		word, isText := arg.(string)
		if !isText || strings.Contains(word, "\x00") {
			return ref, errors.New("command has an argument that is not text: write it in quotes")
		}
		ref.command = append(ref.command, word)
	}
	switch {
	case len(args) == 0:
		return ref, errors.New("command is empty or no list: write the program's absolute path and its arguments, [PROGRAM, ARG…]")
	case !filepath.IsAbs(ref.command[0]):
		return ref, fmt.Errorf("command begins with %s: write the program's absolute path", text.Quote(ref.command[0]))
	}
	return ref, nil
}

// from resolves a relative path against dir.
func (r reference) from(dir string) reference {
	if dir != "" && r.file != "" && !filepath.IsAbs(r.file) {
		r.file = filepath.Join(dir, r.file)
	}
	return r
}

// String names the source without what may be secret.
func (r reference) String() string {
	switch {
	case r.file != "":
		return "file " + text.Clean(r.file)
	case r.env != "":
		return "variable " + text.Clean(r.env)
	}
	return "command " + text.Clean(r.command[0])
}
