package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/suggest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// decode decodes settings into S strictly and fills in the defaults. It does not call Validate.
func decode[S any](settings map[string]any) (out S, found []Diagnostic) {
	plain, err := plainJSON(settings)
	if err != nil {
		return out, []Diagnostic{{Summary: "the settings cannot be written as JSON: " + err.Error()}}
	}
	s := &shape{}
	s.value(spot{}, plain, reflect.TypeFor[S]())
	if len(s.found) > 0 {
		return out, s.found
	}
	text, _ := json.Marshal(plain) // it was JSON before
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // shape skips types with their own UnmarshalJSON
	if err := decoder.Decode(&out); err != nil {
		return out, []Diagnostic{settingsFault(err)}
	}
	return out, nil
}

// plainJSON returns a copy of settings with JSON types only.
func plainJSON(settings map[string]any) (map[string]any, error) {
	plain := map[string]any{}
	if settings == nil {
		return plain, nil
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // float64 would change large integers
	return plain, decoder.Decode(&plain)
}

// withArticle are the JSON types whose words are not package json's.
var withArticle = map[string]string{"object": "an object", "array": "a list"}

// settingsFault describes an error without the value, which may be secret.
func settingsFault(err error) Diagnostic {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(wrong.Value, " ") // the rest is the value
		return Diagnostic{
			Summary: "the setting " + wrong.Field + " is " + cmp.Or(withArticle[kind], "a "+kind) + ": it takes a " + wrong.Type.String(),
			Pointer: "/" + strings.ReplaceAll(wrong.Field, ".", "/"),
		}
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return Diagnostic{Summary: "there is no setting " + wire.CleanText(strings.Trim(name, `"`), "")}
	}
	return Diagnostic{Summary: "the settings cannot be read"}
}

// shape checks settings against the fields of a struct, at any depth, and fills in defaults.
// Names are case-sensitive, as in the schema and unlike in package json.
type shape struct{ found []Diagnostic }

// spot is where a value is, and what the tags of its field say.
type spot struct {
	path, pointer string
	tag           reflect.StructTag
	secret        bool
}

func (at spot) below(name string) spot {
	path := wire.CleanText(name, "")
	if at.path != "" {
		path = at.path + "." + path
	}
	return spot{path, at.pointer + "/" + escape(name), "", at.secret}
}

func (s *shape) fault(pointer, summary, detail string) {
	s.found = append(s.found, Diagnostic{Summary: summary, Detail: detail, Pointer: pointer})
}

// value checks a value and returns it as package json reads it. Type errors are left to the
// decoder.
func (s *shape) value(at spot, value any, t reflect.Type) any {
	t = bare(t)
	if value == nil {
		return nil
	}
	if isScalar(t) {
		return s.scalar(at, value, t)
	}
	if readsItself(t) {
		return s.foreign(at, value, t)
	}
	switch value := value.(type) {
	case map[string]any:
		s.object(at, value, t)
		s.whole(at, value, t)
	case []any:
		for i, element := range value {
			if t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
				one := at
				one.path, one.pointer = at.path+"["+strconv.Itoa(i)+"]", at.pointer+"/"+strconv.Itoa(i)
				value[i] = s.value(one, element, t.Elem())
			}
		}
	}
	return value
}

func (s *shape) object(at spot, object map[string]any, t reflect.Type) {
	if t.Kind() == reflect.Map {
		for _, key := range slices.Sorted(maps.Keys(object)) {
			object[key] = s.value(at.below(key), object[key], t.Elem())
		}
	}
	if t.Kind() != reflect.Struct {
		return
	}
	fields := fieldsOf(t)
	s.unknown(at, object, namesOf(fields))
	for _, f := range fields {
		below := at.below(f.name)
		below.tag, below.secret = f.tag, at.secret || f.secret
		s.field(below, object, f)
	}
}

func (s *shape) field(at spot, object map[string]any, f field) {
	value, set := object[f.name]
	if value == "" && isScalar(f.kind) && !f.required { // as templates of a configuration leave it
		delete(object, f.name)
		value, set = nil, false
	}
	switch {
	case value != nil:
	case f.byDefault != nil:
		value = decoded(f.byDefault)
	case bare(f.kind).Kind() == reflect.Struct && f.kind.Kind() != reflect.Pointer && !readsItself(f.kind) && !f.required:
		// Not set, but there may be defaults inside.
		value = map[string]any{}
	case f.required:
		s.fault(at.pointer, "the setting "+at.path+" is not set", f.about)
		return
	case !set:
		return
	}
	s.enumerated(at.path, at.pointer, value, f)
	if written, isText := value.(string); isText && f.pattern != nil && !f.pattern.MatchString(written) {
		s.refuse(at, written, "it takes text that matches "+f.pattern.String(), f.about)
	}
	object[f.name] = s.value(at, value, f.kind)
}

// enumerated checks a value, or each of a list, against the enum.
func (s *shape) enumerated(path, pointer string, value any, f field) {
	list, many := value.([]any)
	if !many {
		list = []any{value}
	}
	for _, one := range list {
		text, isText := one.(string)
		if f.enum == nil || !isText || slices.Contains(f.enum, text) {
			continue
		}
		said := `is "` + wire.CleanText(text, "") + `"`
		if f.secret {
			said = "is another"
		}
		s.fault(pointer, "the setting "+path+" "+said+": it takes "+strings.Join(f.enum, " or "), f.about)
	}
}

func (s *shape) unknown(at spot, object map[string]any, known []string) {
	prefix := at.path
	if prefix != "" {
		prefix += "."
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if slices.Contains(known, key) {
			continue
		}
		summary := "there is no setting " + prefix + wire.CleanText(key, "")
		if meant := suggest.Word(key, known); meant != "" {
			summary += "; did you mean " + prefix + meant + "?"
		} else if len(known) == 0 {
			summary += "; there are none"
		} else {
			summary += "; there are: " + strings.Join(known, ", ")
		}
		s.fault(at.pointer+"/"+escape(key), summary, "")
	}
}

// escape returns a key as a part of a JSON Pointer (RFC 6901, section 3).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(wire.CleanText(key, ""))
}

// asError returns one error for all diagnostics except warnings, or nil.
func asError(found []Diagnostic) error {
	if !wire.HasErrors(found) {
		return nil
	}
	return ca.Errorf(ca.Invalid, "%s", sentences(found))
}

// sentences joins the diagnostics except warnings.
func sentences(found []Diagnostic) string {
	var faults []string
	for _, d := range found {
		if !d.Warning {
			faults = append(faults, strings.TrimSuffix(d.Summary+": "+d.Detail, ": "))
		}
	}
	return strings.Join(faults, "; ")
}
