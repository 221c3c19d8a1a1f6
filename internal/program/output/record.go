package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// record is one of hclog: JSON with @level, @message and attributes.
type record map[string]any

func parse(line []byte) (record, bool) {
	if len(line) == 0 || line[0] != '{' {
		return nil, false
	}
	var r record
	if json.Unmarshal(line, &r) != nil {
		return nil, false
	}
	_, ok := r["@message"].(string)
	return r, ok
}

// lines returns the record as text: level, message and attributes in the first line, then those
// of more than one line.
func (r record) lines() (lines []string, stack bool) {
	level, _ := r["@level"].(string)
	message, _ := r["@message"].(string)
	var first strings.Builder
	first.WriteString(strings.TrimSpace(cmp.Or(level, "info") + ": " + message))
	for _, key := range slices.Sorted(maps.Keys(r)) {
		value, isText := r[key].(string)
		switch {
		case strings.HasPrefix(key, "@"):
		case isText && strings.Contains(strings.TrimSpace(value), "\n"):
			stack = stack || key == "stack"
			for line := range strings.Lines(strings.TrimSpace(value)) {
				lines = append(lines, "    "+strings.TrimRight(line, "\r\n"))
			}
		default:
			fmt.Fprintf(&first, " %s=%s", key, quoted(r[key]))
		}
	}
	return append([]string{first.String()}, lines...), stack
}

// quoted returns a value as logs show it, in quotes where it has a space.
func quoted(value any) string {
	if text, ok := value.(string); ok && text != "" && !strings.ContainsAny(text, " \t\n\"=") {
		return text
	}
	encoded, _ := json.Marshal(value) // it came from JSON
	return string(encoded)
}
