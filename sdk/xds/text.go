package xds

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// maxShown bounds how many names a log line has.
const maxShown = 10

// nameList is names as a log line shows them: the first ten, each cut and escaped.
type nameList []string

// LogValue joins them when the line is written.
func (n nameList) LogValue() slog.Value {
	shown := text.CleanAll(n[:min(len(n), maxShown)])
	if more := len(n) - maxShown; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return slog.StringValue(strings.Join(shown, ", "))
}
