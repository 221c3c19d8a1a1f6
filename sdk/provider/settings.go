package provider

import (
	"bytes"
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

// decode reads settings into S, strictly, with the defaults filled in. What is wrong
// with them is found; what the struct's own Validate says is not asked here.
func decode[S any](settings map[string]any) (out S, found []Diagnostic) {
	plain, err := plainJSON(settings)
	if err != nil {
		return out, []Diagnostic{{Summary: "the settings are not representable as JSON: " + err.Error()}}
	}
	s := &shape{}
	s.object("", "", plain, reflect.TypeFor[S]())
	if len(s.found) > 0 {
		return out, s.found
	}
	text, _ := json.Marshal(plain) // it came from JSON
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // shape passes over types that read themselves
	if err := decoder.Decode(&out); err != nil {
		return out, []Diagnostic{settingsFault(err)}
	}
	return out, nil
}

// plainJSON returns a copy of settings with nothing in it but what JSON has.
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
	decoder.UseNumber() // a large one would not come back as it was
	return plain, decoder.Decode(&plain)
}

// settingsFault says what is wrong without quoting a value, which may be secret.
func settingsFault(err error) Diagnostic {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(wrong.Value, " ") // what follows is the value
		return Diagnostic{
			Summary: "the setting " + wrong.Field + " is a " + kind + ": it takes a " + wrong.Type.String(),
			Pointer: "/" + strings.ReplaceAll(wrong.Field, ".", "/"),
		}
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return Diagnostic{Summary: "there is no setting " + wire.CleanText(strings.Trim(name, `"`), "")}
	}
	return Diagnostic{Summary: "the settings cannot be read"}
}

// shape holds settings against a struct's fields, however deep, and fills in what is
// left out. Names count to the letter: JSON in Go is laxer than the schema.
type shape struct{ found []Diagnostic }

func (s *shape) fault(pointer, summary, detail string) {
	s.found = append(s.found, Diagnostic{Summary: summary, Detail: detail, Pointer: pointer})
}

// value looks into a value; where its type is another the decoder says so better.
func (s *shape) value(path, pointer string, value any, t reflect.Type) {
	t = bare(t)
	if readsItself(t) {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		s.object(path, pointer, value, t)
	case []any:
		for i, element := range value {
			if t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
				index := strconv.Itoa(i)
				s.value(path+"["+index+"]", pointer+"/"+index, element, t.Elem())
			}
		}
	}
}

func (s *shape) object(path, pointer string, object map[string]any, t reflect.Type) {
	t = bare(t)
	prefix := path
	if path != "" {
		prefix += "."
	}
	if t.Kind() == reflect.Map {
		for _, key := range slices.Sorted(maps.Keys(object)) {
			s.value(prefix+wire.CleanText(key, ""), pointer+"/"+escape(key), object[key], t.Elem())
		}
	}
	if t.Kind() != reflect.Struct || readsItself(t) {
		return
	}
	fields := fieldsOf(t)
	s.unknown(prefix, pointer, object, namesOf(fields))
	for _, f := range fields {
		s.field(prefix+f.name, pointer+"/"+escape(f.name), object, f)
	}
}

func (s *shape) field(path, pointer string, object map[string]any, f field) {
	value, set := object[f.name]
	switch {
	case value != nil:
	case f.byDefault != nil:
		object[f.name] = f.byDefault
		return
	case bare(f.kind).Kind() == reflect.Struct && f.kind.Kind() != reflect.Pointer && !readsItself(f.kind) && !f.required:
		// Left out, but there may be defaults below it.
		value = map[string]any{}
		object[f.name] = value
	case f.required:
		s.fault(pointer, "the setting "+path+" is not set", f.about)
		return
	case !set:
		return
	}
	s.enumerated(path, pointer, value, f)
	s.value(path, pointer, value, f.kind)
}

// enumerated holds a value, or each of a list, against the only ones there are.
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

func (s *shape) unknown(prefix, pointer string, object map[string]any, known []string) {
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
		s.fault(pointer+"/"+escape(key), summary, "")
	}
}

// escape makes a key a part of a JSON Pointer (RFC 6901, section 3).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(wire.CleanText(key, ""))
}

// asError makes one error of what is wrong; warnings are none.
func asError(found []Diagnostic) error {
	if !wire.HasErrors(found) {
		return nil
	}
	return ca.Errorf(ca.Invalid, "%s", sentences(found))
}

// sentences puts what is wrong in a row.
func sentences(found []Diagnostic) string {
	var faults []string
	for _, d := range found {
		if !d.Warning {
			faults = append(faults, strings.TrimSuffix(d.Summary+": "+d.Detail, ": "))
		}
	}
	return strings.Join(faults, "; ")
}
