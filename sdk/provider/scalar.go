package provider

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

// described is a setting type that describes its values in the JSON Schema, such as those of
// package setting.
type described interface {
	SettingSchema(tag reflect.StructTag) string
}

// checked is a setting type that checks what was read.
type checked interface {
	CheckSetting(tag reflect.StructTag) error
}

var duration = reflect.TypeFor[time.Duration]()

func readsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isScalar reports whether a type is written as one text and describes itself.
func isScalar(t reflect.Type) bool {
	t = bare(t)
	return t == duration || readsText(t) && reflect.PointerTo(t).Implements(reflect.TypeFor[described]())
}

// schemaOfScalar returns the JSON Schema of such a type.
func schemaOfScalar(t reflect.Type, tag reflect.StructTag) string {
	if t == duration {
		return `{"type": "string", "format": "go-duration", "pattern": "^([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$", "examples": ["90s", "24h"]}`
	}
	return reflect.New(t).Interface().(described).SettingSchema(tag) //nolint:forcetypeassert // isScalar has asked
}

// scalar checks a value of such a type.
func (s *shape) scalar(at spot, value any, t reflect.Type) any {
	written, isText := value.(string)
	if number, isNumber := value.(json.Number); isNumber && t != duration {
		written, isText = number.String(), true
	}
	if !isText {
		s.fault(at.pointer, "the setting "+at.path+" is "+kindOf(value)+": write text, in quotes", "")
		return value
	}
	if t == duration {
		return s.duration(at, written)
	}
	read := reflect.New(t).Interface()
	err := read.(encoding.TextUnmarshaler).UnmarshalText([]byte(written)) //nolint:forcetypeassert // isScalar has asked
	if c, ok := read.(checked); ok && err == nil {
		err = c.CheckSetting(at.tag)
	}
	if err != nil {
		s.refuse(at, written, err.Error(), "")
	}
	return written
}

// kindOf names the JSON type of a value.
func kindOf(value any) string {
	switch value.(type) {
	case json.Number:
		return "a number"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	}
	return "an object"
}

func (s *shape) duration(at spot, written string) any {
	d, err := time.ParseDuration(written)
	if err != nil || d < 0 {
		s.refuse(at, written, "it takes a duration, 0 or more with a unit, such as 90s, 30m or 24h", "")
	}
	return json.Number(strconv.FormatInt(int64(d), 10))
}

// refuse reports that a value is not allowed; the value of a secret is not shown.
func (s *shape) refuse(at spot, written, takes, detail string) {
	said := "is " + text.Quote(text.WithoutPassword(written))
	if at.secret || strings.Contains(written, "@") && text.WithoutPassword(written) == written { // a password may be before the @
		said = "is another"
	}
	s.fault(at.pointer, "the setting "+at.path+" "+said+": "+text.Clean(takes), detail)
}

// foreign checks a value of a type that unmarshals itself. Its error may quote the value.
func (s *shape) foreign(at spot, value any, t reflect.Type) any {
	encoded, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(encoded, reflect.New(t).Interface())
	}
	if err != nil {
		s.fault(at.pointer, "the setting "+at.path+" cannot be read", "")
	}
	return value
}

// whole checks an object of a type that checks itself, or of one that embeds such.
func (s *shape) whole(at spot, object map[string]any, t reflect.Type) {
	if t.Kind() != reflect.Struct || len(s.found) > 0 {
		return
	}
	for _, part := range parts(t) {
		read := reflect.New(part).Interface()
		c, ok := read.(checked)
		encoded, err := json.Marshal(object)
		if !ok || err != nil || json.Unmarshal(encoded, read) != nil {
			continue
		}
		if err := c.CheckSetting(at.tag); err != nil {
			name := "the settings "
			if at.path != "" {
				name = "the setting " + at.path + ": "
			}
			s.fault(at.pointer, name+text.Clean(err.Error()), "")
		}
	}
}

// parts returns a struct type, or, where it embeds others, those.
func parts(t reflect.Type) (all []reflect.Type) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous && bare(f.Type).Kind() == reflect.Struct {
			all = append(all, bare(f.Type))
		}
	}
	if all == nil {
		return []reflect.Type{t}
	}
	return all
}

// decoded returns a JSON value with its numbers as they are written.
func decoded(raw json.RawMessage) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	_ = decoder.Decode(&value) // it was encoded before
	return value
}
