package deploytest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"
)

// Valid checks a file against the schema, as an editor does.
func Valid(schema, text string) error {
	var rules jsonschema.Schema
	if err := json.Unmarshal([]byte(schema), &rules); err != nil {
		return fmt.Errorf("the schema is not valid: %w", err)
	}
	resolved, err := rules.Resolve(nil)
	if err != nil {
		return fmt.Errorf("the schema is not valid: %w", err)
	}
	var says any
	if err := yaml.Unmarshal([]byte(text), &says); err != nil {
		return err
	}
	return resolved.Validate(says)
}

// Spoiled returns the file without the settings that text has, and with text.
func Spoiled(working, text string) string {
	if !strings.Contains(text, ": ") || strings.HasPrefix(text, "a: b") {
		return text
	}
	var kept strings.Builder
	skip := false
	for line := range strings.Lines(working) {
		key, _, isKey := strings.Cut(line, ":")
		if isKey && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "-") {
			skip = strings.HasPrefix(text, key+":") || strings.Contains(text, "\n"+key+":")
		}
		if !skip {
			kept.WriteString(line)
		}
	}
	return kept.String() + text + "\n"
}
