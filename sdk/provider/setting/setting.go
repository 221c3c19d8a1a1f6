// Package setting (for authors of providers) has types for the fields of a provider's settings:
// [Size], [URL], [File], [Certificates], [KeyPair] and [TLS]. Each is checked when the settings
// are read, with an error that has the setting's path and what is allowed, and describes itself
// in the JSON Schema. A time.Duration needs no type of this package: package provider reads
// "24h".
//
//	type settings struct {
//		URL     setting.URL   `json:"url" jsonschema:"base URL of the CA"`
//		Timeout time.Duration `json:"timeout" default:"20s"`
//		setting.TLS
//	}
//
// A scalar type of an author's own is checked and described in the same way if it has the
// methods UnmarshalText and SettingSchema(reflect.StructTag) string, which returns a JSON
// Schema. The text of an error completes "the setting NAME is VALUE: ". A scalar or struct
// with the method CheckSetting(reflect.StructTag) error is checked by it after it was read.
//
// What is in files is read for each use, so that a changed file needs no restart. The package
// has no goroutine.
package setting

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// schema returns a JSON Schema of a string.
func schema(format, pattern string, examples ...string) string {
	out := map[string]any{"type": "string", "examples": examples}
	if format != "" {
		out["format"] = format
	}
	if pattern != "" {
		out["pattern"] = pattern
	}
	encoded, _ := json.Marshal(out) // text only
	return string(encoded)
}

// Size is a number of bytes, written as a number or with a unit: 512, "64KiB", "10MiB", "1Gi".
type Size int64

// UnmarshalText reads a number of bytes.
func (s *Size) UnmarshalText(written []byte) error {
	size, err := text.ParseSize(string(written))
	if err != nil {
		return errors.New("it takes a number of bytes, or one with a unit, such as 64KiB, 10MiB or 1GiB")
	}
	*s = Size(size)
	return nil
}

// SettingSchema describes the setting.
func (Size) SettingSchema(reflect.StructTag) string {
	return strings.Replace(schema("", "^[0-9]+((Ki|Mi|Gi)B?|B)?$", "64KiB", "10MiB"), `"type":"string"`, `"type":["string","integer"],"minimum":0`, 1)
}
