package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
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
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&out); err != nil {
			return out, ca.Errorf(ca.Invalid, "%s", settingsFault(err, reflect.TypeFor[S]()))
		}
	}
	if v, ok := any(out).(interface{ Validate() error }); ok {
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
func settingsFault(err error, settings reflect.Type) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "the setting " + wrong.Field + " is a " + wrong.Value + ": it takes a " + wrong.Type.String()
	}
	name, unknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	if !unknown {
		return "the settings cannot be read"
	}
	name = wire.CleanText(strings.Trim(name, `"`), "")
	known := keysOf(settings)
	if meant := near.Word(name, known); meant != "" {
		return "there is no setting " + name + "; did you mean " + meant + "?"
	}
	return "there is no setting " + name + "; there are: " + strings.Join(known, ", ")
}

// keysOf returns the JSON names of a struct's fields, those of its structs included.
func keysOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !field.IsExported() || name == "-" || field.Anonymous:
		case name != "":
			keys = append(keys, name)
		default:
			keys = append(keys, field.Name)
		}
	}
	return keys
}
