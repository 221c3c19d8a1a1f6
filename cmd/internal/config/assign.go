package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"
)

func valueOf(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() }

// ParseAssignment reads PATH=VALUE, the argument of --set.
func ParseAssignment(text string) (Assignment, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok || path == "" {
		return Assignment{}, fmt.Errorf("--set is %.256q: write SETTING=VALUE, such as rotation.ratio=0.3 or providers.file.sha256=…", text)
	}
	return Assignment{Path: path, Value: value, Origin: "--set " + path}, nil
}

// assign sets one setting by its path. In a list of providers or secrets the path
// has the entry's name, and an entry that is not there yet is made.
func (c *Config) assign(a Assignment) error {
	var d decoder
	d.assign(valueOf(c), a, strings.Split(a.Path, "."), "")
	if len(d.problems.errs) > 0 {
		return fmt.Errorf("%s: %w", a.Origin, d.problems.err())
	}
	if a.Origin != "" {
		c.origins[a.Path] = a.Origin
	}
	return nil
}

func (d *decoder) assign(v reflect.Value, a Assignment, rest []string, path string) {
	if len(rest) == 0 {
		d.fill(v, a.Value, path)
		return
	}
	key, rest := rest[0], rest[1:]
	switch {
	case v.Kind() == reflect.Map:
		d.assignEntry(v, a.Value, append([]string{key}, rest...))
	case v.Kind() == reflect.Struct && !isText(v):
		field, ok := fieldOf(v, key)
		if !ok {
			d.unknown(v.Type(), path, key)
			return
		}
		d.assign(field, a, rest, join(path, key))
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && !hasName(v.Type().Elem()):
		d.problems.add(fmt.Errorf("setting %.256q: the entries of %s have no names; write them in the file", a.Path, path))
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		d.assign(entryOf(v, key), a, rest, join(path, key))
	case d.removed(a.Path):
	default:
		d.problems.add(fmt.Errorf("unknown setting %.256q: %s has no settings of its own", a.Path, path))
	}
}

func isText(v reflect.Value) bool {
	_, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	return ok
}

func hasName(entry reflect.Type) bool {
	_, ok := entry.FieldByName("Name")
	return ok
}

// entryOf returns the entry of that name in a list, made if need be.
func entryOf(list reflect.Value, name string) reflect.Value {
	for i := range list.Len() {
		if list.Index(i).FieldByName("Name").String() == name {
			return list.Index(i)
		}
	}
	list.Set(reflect.Append(list, reflect.Zero(list.Type().Elem())))
	entry := list.Index(list.Len() - 1)
	entry.FieldByName("Name").SetString(name)
	return entry
}

// assignEntry sets one provider setting, however deep, or variable. What a
// setting's value is follows the rules of the file: true is a truth value, 3 a
// number, "3" text.
func (d *decoder) assignEntry(m reflect.Value, text string, path []string) {
	if m.IsNil() {
		m.Set(reflect.MakeMap(m.Type()))
	}
	if m.Type().Elem().Kind() != reflect.Interface {
		m.SetMapIndex(reflect.ValueOf(strings.Join(path, ".")), reflect.ValueOf(text))
		return
	}
	settings := m.Interface().(map[string]any)
	for ; len(path) > 1; path = path[1:] {
		below, ok := settings[path[0]].(map[string]any)
		if !ok {
			below = map[string]any{}
			settings[path[0]] = below
		}
		settings = below
	}
	value := any(text)
	if err := yaml.Unmarshal([]byte(text), &value); err != nil || value == nil {
		value = text
	}
	settings[path[0]] = value
}
