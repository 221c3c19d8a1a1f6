package wire

import (
	"encoding/json"

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
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, ca.Errorf(ca.Invalid, "the settings are not a JSON object: %w", err)
	}
	out, err := structpb.NewStruct(plain)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "the settings cannot be sent: %w", err)
	}
	return out, nil
}
