package xds

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// maxShown limits the names in a log line.
const maxShown = 10

// nameList renders names in a log line: the first ten, each truncated and escaped.
type nameList []string

// LogValue joins the names when the line is written.
func (n nameList) LogValue() slog.Value {
	shown := text.CleanAll(n[:min(len(n), maxShown)])
	if more := len(n) - maxShown; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return slog.StringValue(strings.Join(shown, ", "))
}
