package provider

import (
	"io"
	"log/slog"
	"strings"
	"time"
)

// stampLayout is the layout of hclog. Its readers treat a record with another one as plain
// text, without a level.
const stampLayout = "2006-01-02T15:04:05.000000Z07:00"

// newLog returns a logger that writes what go-plugin hosts read: hclog's JSON, one record a
// line.
func newLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level:       slog.LevelDebug, // the host filters
		ReplaceAttr: asHclog,
	}))
}

// asHclog renames the attributes of slog itself, and leaves an author's "time" or "level"
// unchanged.
func asHclog(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch value := a.Value.Any().(type) {
	case time.Time:
		if a.Key == slog.TimeKey {
			return slog.String("@timestamp", value.Format(stampLayout))
		}
	case slog.Level:
		if a.Key == slog.LevelKey {
			return slog.String("@level", strings.ToLower(value.String()))
		}
	case string:
		if a.Key == slog.MessageKey {
			return slog.String("@message", value)
		}
	}
	return a
}
