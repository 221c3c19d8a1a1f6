package wire

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// settingsToProto converts by way of JSON: settings from YAML or Go code may have types (named
// strings, []string, int) that structpb does not accept.
func settingsToProto(settings map[string]any) (*structpb.Struct, error) {
	if len(settings) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "the settings cannot be written as JSON: %w", err)
	}
	var plain map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		return nil, ca.Errorf(ca.Invalid, "the settings are not a JSON object: %w", err)
	}
	if err := checkNumbers(plain); err != nil {
		return nil, err
	}
	out, err := structpb.NewStruct(plain)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "the settings cannot be sent: %w", err)
	}
	return out, nil
}

// maxInteger is the greatest integer up to which a double represents each one.
const maxInteger = 1 << 53

// checkNumbers refuses an integer that would arrive as another one: numbers are sent as doubles.
func checkNumbers(value any) error {
	switch value := value.(type) {
	case json.Number:
		whole, err := value.Int64()
		if exact := err == nil && whole >= -maxInteger && whole <= maxInteger; !exact && !strings.ContainsAny(value.String(), ".eE") {
			return ca.Errorf(ca.Invalid, "a setting is %.64s: integers beyond 2^53 cannot be sent; the provider has to take it as text", value)
		}
	case []any:
		for _, one := range value {
			if err := checkNumbers(one); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, one := range value {
			if err := checkNumbers(one); err != nil {
				return err
			}
		}
	}
	return nil
}
