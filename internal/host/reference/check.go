package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// MaxReferences bounds the references of a provider. With [MaxSecret] it keeps the resolved
// settings below what the protocol carries in a message.
const MaxReferences = 32

// visit is called with each secret value: its JSON Pointer, its value, and whether that is an
// object, so a reference. What it returns replaces the value.
type visit func(pointer string, value any, isReference bool) any

// walk returns a copy of the value with its secrets replaced. Lists and objects without
// secrets are shared.
func walk(value any, pointer string, at Place, f visit) any {
	if !at.HasSecrets() {
		return value
	}
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case isObject && at.ends() && !at.leads():
		return f(pointer, value, true)
	case isObject:
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			out[name] = walk(object[name], pointer+"/"+escape.Replace(name), at.Below(name), f)
		}
		return out
	case isList:
		out := make([]any, len(list))
		for i, one := range list {
			index := strconv.Itoa(i)
			out[i] = walk(one, pointer+"/"+index, at.Below(index), f)
		}
		return out
	case at.Secret():
		return f(pointer, value, false)
	}
	return value
}

// shown returns a pointer as a person writes the path of a setting.
func shown(pointer string) string { return text.Clean(strings.Join(split(pointer), ".")) }

// Check returns an error for each malformed reference in the settings, which begins with its
// path. It reads nothing.
func Check(settings map[string]any, paths Paths) error {
	plain, err := plainJSON(settings, paths)
	if err != nil {
		return err
	}
	var errs []error
	found := 0
	walk(plain, "", paths.Root(), func(pointer string, value any, isReference bool) any {
		if isReference {
			found++
			if _, err := parse(value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", shown(pointer), err))
			}
		}
		return value
	})
	if found > MaxReferences {
		return fmt.Errorf("the settings have %d references to secrets, %d are allowed", found, MaxReferences)
	}
	return errors.Join(errs...)
}

// Unset returns an error for each reference to a variable that is unset or empty, which begins with
// its path. It reads nothing.
func Unset(settings map[string]any, paths Paths, lookup func(name string) (value string, ok bool)) error {
	plain, err := plainJSON(settings, paths)
	if err != nil {
		return err
	}
	var errs []error
	walk(plain, "", paths.Root(), func(pointer string, value any, isReference bool) any {
		ref, err := parse(value)
		if !isReference || err != nil || ref.env == "" {
			return value
		}
		if !IsSet(ref.env, lookup) {
			errs = append(errs, fmt.Errorf("%s: %s: %w", shown(pointer), ref, errUnset))
		}
		return value
	})
	return errors.Join(errs...)
}

// plainJSON returns settings with JSON types only, if there may be references in them.
func plainJSON(settings map[string]any, paths Paths) (any, error) {
	if len(paths) == 0 || len(settings) == 0 {
		return settings, nil
	}
	encoded, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("the settings cannot be written as JSON: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(encoded)))
	decoder.UseNumber() // float64 would change large integers
	var plain map[string]any
	return plain, decoder.Decode(&plain)
}

// Variables returns the variables of all that may be a reference, as only a running provider
// declares its secrets.
func Variables(settings any) (names []string) {
	switch value := settings.(type) {
	case map[string]any:
		if name, ok := value["env"].(string); ok && len(value) == 1 {
			return []string{name}
		}
		for _, below := range value {
			names = append(names, Variables(below)...)
		}
	case []any:
		for _, below := range value {
			names = append(names, Variables(below)...)
		}
	}
	return names
}
