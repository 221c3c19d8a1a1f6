package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/suggest"
)

// decoder fills a Config from YAML or text. It replaces encoding/json because every error
// names the setting by its path, and suggests the nearest name for an unknown one.
type decoder struct {
	source   string // "in countersign.yaml"; empty for a variable or flag
	problems problems
	written  map[string]bool // paths that were set; nil: not recorded
}

// fill stores node in v; path names v in errors. It accepts text for every scalar and, with
// commas, for a list, because variables and flags have no types.
func (d *decoder) fill(v reflect.Value, node any, path string) {
	if node == nil {
		return // "secrets:" with nothing after it
	}
	d.write(path)
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		d.fillText(text, node, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fillStruct(v, node, path)
	case reflect.Slice:
		d.fillSlice(v, node, path)
	case reflect.Map:
		d.fillMap(v, node, path)
	default:
		d.fillScalar(v, node, path)
	}
}

func (d *decoder) write(path string) {
	if d.written != nil {
		d.written[path] = true
	}
}

func (d *decoder) fillText(v encoding.TextUnmarshaler, node any, path string) {
	text, isText := node.(string)
	if !isText {
		text = fmt.Sprint(node)
	}
	err := v.UnmarshalText([]byte(text))
	if err == nil && !isText {
		err = errors.New("write it in quotes")
	}
	if err != nil {
		d.problem(path, node, err.Error())
	}
}

func (d *decoder) fillStruct(v reflect.Value, node any, path string) {
	entries, ok := node.(map[string]any)
	if !ok {
		d.problem(path, node, "write settings below it, one of: "+strings.Join(keys(v.Type()), ", "))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		field, ok := fieldOf(v, key)
		if !ok {
			d.unknown(v.Type(), path, key)
			continue
		}
		d.fill(field, entries[key], join(path, key))
	}
}

func (d *decoder) fillSlice(v reflect.Value, node any, path string) {
	list, ok := node.([]any)
	if text, isText := node.(string); isText && v.Type().Elem().Kind() != reflect.Struct {
		list, ok = split(text), true
	}
	if !ok {
		d.notList(node, path)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	for i, entry := range list {
		d.fill(v.Index(i), entry, join(path, label(path, entry, i)))
	}
}

// notList refuses a node that should be a list. It may have been a mapping before.
func (d *decoder) notList(node any, path string) {
	entries, _ := node.(map[string]any)
	refused := false
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		refused = d.removed(join(path, key)) || refused
	}
	if !refused {
		d.problem(path, node, "write a list")
	}
}

// removed refuses a setting that was removed, and reports whether it was one.
func (d *decoder) removed(path string) bool {
	advice := instead(path)
	if advice != "" {
		d.problems.add(fmt.Errorf("unknown setting %.256q%s: removed; %s", path, d.source, advice))
	}
	return advice != ""
}

func (d *decoder) fillMap(v reflect.Value, node any, path string) {
	entries, ok := node.(map[string]any)
	if !ok {
		d.problem(path, node, "write names with values below it")
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(entries)))
	for key, value := range entries {
		if _, isText := value.(string); !isText && v.Type().Elem().Kind() == reflect.String {
			d.problem(join(path, key), value, "write text, in quotes")
		} else if value != nil {
			d.write(join(path, key))
			v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(value))
		}
	}
}

func (d *decoder) fillScalar(v reflect.Value, node any, path string) {
	text, isText := node.(string)
	if !isText {
		text = fmt.Sprint(node)
	}
	switch v.Kind() {
	case reflect.String:
		if !isText {
			d.problem(path, node, "write text, in quotes if it looks like something else")
			return
		}
		v.SetString(text)
	case reflect.Bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			d.problem(path, node, "write true or false")
		}
		v.SetBool(on)
	case reflect.Uint32:
		n, err := strconv.ParseUint(text, 10, 32)
		if number, ok := node.(float64); ok && number >= 0 && number < 1<<32 && number == float64(uint32(number)) {
			n, err = uint64(number), nil
		}
		if err != nil {
			d.problem(path, node, "write a whole number, 0 or more")
		}
		v.SetUint(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			d.problem(path, node, "write a number")
		}
		v.SetFloat(n)
	default:
		panic("config: settings of kind " + v.Kind().String() + " are not decoded yet")
	}
}

func (d *decoder) unknown(t reflect.Type, path, key string) {
	if d.removed(join(path, key)) {
		return
	}
	known := keys(t)
	hint := "known here: " + strings.Join(known, ", ")
	if meant := suggest.Word(key, known); meant != "" {
		hint = fmt.Sprintf("did you mean %q?", join(path, meant))
	}
	d.problems.add(fmt.Errorf("unknown setting %.256q%s: %s", join(path, key), d.source, hint))
}

func (d *decoder) problem(path string, node any, allowed string) {
	value := inFile(node)
	if isSecret(path) {
		value = "(set)"
	}
	d.problems.say(path, value, d.source, allowed)
}

// inFile is a value as an error shows it: of a mapping and a list only that it is one, as it can
// be long and hold credentials.
func inFile(node any) string {
	switch node.(type) {
	case nil:
		return "empty"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("%.256q", fmt.Sprint(node))
}

// isSecret reports whether a setting may be a credential: only the provider can declare which of
// its settings are, and only the operator what the proxy gets.
func isSecret(path string) bool {
	return strings.HasPrefix(path, "providers.") && (strings.Contains(path, ".settings") || strings.Contains(path, ".env")) ||
		strings.HasPrefix(path, "proxy.env") || strings.HasPrefix(path, "proxy.locality.headers")
}

// fieldOf returns the struct field for a key in the file. [reflect.VisibleFields] would
// allocate all fields for each key of thousands of entries.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if tag := field.Tag.Get("json"); isKey(tag) && tag == key {
			return v.Field(i), true
		}
		if field.Anonymous && field.Type.Kind() == reflect.Struct {
			if found, ok := fieldOf(v.Field(i), key); ok {
				return found, true
			}
		}
	}
	return reflect.Value{}, false
}

// isKey reports whether the file can have a field with this name.
func isKey(tag string) bool { return tag != "" && tag != "-" }

func keys(t reflect.Type) []string {
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		if tag := field.Tag.Get("json"); isKey(tag) {
			names = append(names, tag)
		}
	}
	slices.Sort(names)
	return names
}

// label identifies an entry of the list at path by its name, or a rule of secrets by its default name.
func label(path string, entry any, i int) string {
	settings, _ := entry.(map[string]any)
	name, _ := settings["name"].(string)
	if name == "" && path == "secrets" {
		name = ruleName(textsOf(settings["match"]), fmt.Sprint(cmp.Or(settings["match_file"], any(""))))
	}
	return cmp.Or(name, strconv.Itoa(i))
}

// textsOf returns what is written as a text or as a list of texts.
func textsOf(node any) (all []string) {
	list, _ := node.([]any)
	if text, ok := node.(string); ok {
		list = split(text)
	}
	for _, one := range list {
		all = append(all, fmt.Sprint(one))
	}
	return all
}

func split(text string) []any {
	var list []any
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
