package provider

import (
	"io"
	"log/slog"
	"strings"
	"time"
)

// stampLayout is hclog's. Its readers take a record with any other for plain text,
// and forget its level.
const stampLayout = "2006-01-02T15:04:05.000000Z07:00"

// newLog writes records as hosts of go-plugin read them: hclog's JSON, a line each.
func newLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level:       slog.LevelDebug, // the host filters
		ReplaceAttr: asHclog,
	}))
}

// asHclog renames what slog itself puts into a record, and leaves an author's own
// "time" or "level" as it is.
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
