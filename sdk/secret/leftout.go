package secret

import (
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/countersign-dev/countersign/internal/text"
)

// leftOut logs what an authority sends and the agent does not serve: once, as it comes with each
// reply, and again when it changes.
type leftOut struct{ logged atomic.Pointer[string] }

func (l *leftOut) warn(log *slog.Logger, message string, reasons []error) {
	texts := make([]string, len(reasons))
	for i, reason := range reasons {
		texts[i] = reason.Error()
	}
	if l.changed(texts) {
		log.Warn(message, "count", len(texts), "reasons", shown(texts))
	}
}

func (l *leftOut) info(log *slog.Logger, message string, certificates []string) {
	if l.changed(certificates) {
		log.Info(message, "count", len(certificates), "certificates", shown(certificates))
	}
}

// changed is false for nothing.
func (l *leftOut) changed(texts []string) bool {
	now := strings.Join(texts, "; ")
	before := l.logged.Swap(&now)
	return now != "" && (before == nil || *before != now)
}

// shown returns the first few.
func shown(texts []string) []string { return text.CleanAll(texts[:min(len(texts), maxShown)]) }
