package fleet

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"

	"github.com/countersign-dev/countersign/internal/text"
)

// LogClient logs client-go's own messages at debug level: what matters is in the status of
// a cluster. Call it before client-go runs.
func LogClient(log *slog.Logger) { klog.SetSlogLogger(slog.New(aside{log.Handler()})) }

// aside handles client-go's messages, which quote API servers. It drops all messages with a
// verbosity, whatever the level here: from 8 on, they contain request bodies with tokens.
type aside struct{ to slog.Handler }

// Enabled implements [slog.Handler]. A verbosity is a level below [slog.LevelInfo].
func (a aside) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && a.to.Enabled(ctx, slog.LevelDebug)
}

// Handle implements [slog.Handler]. klog logs errors without calling Enabled.
func (a aside) Handle(ctx context.Context, said slog.Record) error {
	if !a.Enabled(ctx, said.Level) {
		return nil
	}
	out := slog.NewRecord(said.Time, slog.LevelDebug, "client-go: "+text.Clean(said.Message), said.PC)
	said.Attrs(func(about slog.Attr) bool {
		out.AddAttrs(clean(about))
		return true
	})
	return a.to.Handle(ctx, out)
}

// WithAttrs implements [slog.Handler].
func (a aside) WithAttrs(about []slog.Attr) slog.Handler {
	cleaned := make([]slog.Attr, len(about))
	for i := range about {
		cleaned[i] = clean(about[i])
	}
	return aside{a.to.WithAttrs(cleaned)}
}

// WithGroup implements [slog.Handler].
func (a aside) WithGroup(name string) slog.Handler { return aside{a.to.WithGroup(name)} }

func clean(a slog.Attr) slog.Attr {
	return slog.String(text.Clean(a.Key), text.Clean(a.Value.Resolve().String()))
}
