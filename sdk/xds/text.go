package xds

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// maxText bounds foreign text in logs, errors and events, in bytes.
const maxText = 256

// maxShown bounds how many names a log line has.
const maxShown = 10

// nameList is names as a log line shows them: the first ten, each as clip shows it.
type nameList []string

// LogValue joins them when the line is written.
func (n nameList) LogValue() slog.Value {
	shown := clipAll(n[:min(len(n), maxShown)])
	if more := len(n) - maxShown; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return slog.StringValue(strings.Join(shown, ", "))
}

// clipAll returns the names, each as it may be shown.
func clipAll(names []string) []string {
	clipped := make([]string, len(names))
	for i, name := range names {
		clipped[i] = clip(name)
	}
	return clipped
}

// clip returns foreign text as it may be shown: cut to 256 bytes, what cannot be
// printed escaped as in a Go string.
func clip(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
