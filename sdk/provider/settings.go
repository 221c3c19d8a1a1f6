package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/near"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// decode reads settings into S, strictly, and has it check itself.
func decode[S any](settings map[string]any) (S, error) {
	var out S
	text, err := json.Marshal(settings)
	if err != nil {
		return out, ca.Errorf(ca.Invalid, "the settings are not representable as JSON: %w", err)
	}
	if settings != nil {
		if err := checkKeys("", settings, reflect.TypeFor[S]()); err != nil {
			return out, err
		}
		// checkKeys passes over types that read themselves; the decoder does not.
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&out); err != nil {
			return out, ca.Errorf(ca.Invalid, "%s", settingsFault(err))
		}
	}
	// The pointer has the methods of the value, too.
	if v, ok := any(&out).(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return out, asInvalid(err)
		}
	}
	return out, nil
}

// asInvalid keeps the reason that the author gave, and gives one where he did not.
func asInvalid(err error) error {
	if _, classified := errors.AsType[*ca.Error](err); classified {
		return err
	}
	return ca.Errorf(ca.Invalid, "%w", err)
}

// settingsFault says what is wrong without quoting a value, which may be secret.
func settingsFault(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(wrong.Value, " ") // what follows is the value
		return "the setting " + wrong.Field + " is a " + kind + ": it takes a " + wrong.Type.String()
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return "there is no setting " + wire.CleanText(strings.Trim(name, `"`), "")
	}
	return "the settings cannot be read"
}

// checkKeys finds a key that t has no field for, however deep, and names the one
// that was meant. Names count to the letter: JSON in Go is laxer than the schema.
func checkKeys(path string, value any, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case map[string]any:
		return checkObject(path, value, t)
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil // the decoder says so better
		}
		for i, element := range value {
			if err := checkKeys(fmt.Sprintf("%s[%d]", path, i), element, t.Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkObject(path string, object map[string]any, t reflect.Type) error {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	prefix := path
	if path != "" {
		prefix += "."
	}
	fields, known := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		field, ok := fields[key]
		switch {
		case t.Kind() == reflect.Map:
			field = t.Elem()
		case t.Kind() != reflect.Struct:
			return nil // the decoder says so better
		case !ok:
			return unknownSetting(prefix, key, known)
		}
		if err := checkKeys(prefix+wire.CleanText(key, ""), object[key], field); err != nil {
			return err
		}
	}
	return nil
}

func unknownSetting(prefix, key string, known []string) error {
	name := prefix + wire.CleanText(key, "")
	if meant := near.Word(key, known); meant != "" {
		return ca.Errorf(ca.Invalid, "there is no setting %s; did you mean %s%s?", name, prefix, meant)
	}
	if len(known) == 0 {
		return ca.Errorf(ca.Invalid, "there is no setting %s; there are none", name)
	}
	return ca.Errorf(ca.Invalid, "there is no setting %s; there are: %s", name, strings.Join(known, ", "))
}

// fieldsOf returns the fields of a struct by their JSON names, and the names in
// the order of the struct.
func fieldsOf(t reflect.Type) (fields map[string]reflect.Type, names []string) {
	if t.Kind() != reflect.Struct {
		return nil, nil
	}
	fields = map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if name == "" {
			name = field.Name
		}
		if !field.IsExported() || tag == "-" || field.Anonymous {
			continue
		}
		fields[name] = field.Type
		names = append(names, name)
	}
	return fields, names
}
