// Package loglimit bounds how much a stranger makes us log: [Limit] wraps a logger,
// [Bucket] counts what is logged otherwise, and [Repeats] what the same client causes again.
package loglimit

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/tokenbucket"
)

const (
	burst     = 200  // lines that are logged at once, and
	perSecond = 50.0 // how many more for each second after
)

// Bucket is a token bucket of log lines: 200 at once and some more a second. It is not safe
// for concurrent use.
type Bucket struct {
	// PerSecond is how many more a second are allowed. Default: 50.
	PerSecond float64

	bucket tokenbucket.Bucket
	missed int // lines that were not allowed since the last one that was
}

// Allow reports whether a line may be logged at now, and how many were dropped before it.
func (b *Bucket) Allow(now time.Time) (dropped int, ok bool) {
	if b.bucket.Wait(now, cmp.Or(b.PerSecond, perSecond), burst) > 0 {
		b.missed++
		return 0, false
	}
	b.bucket.Spend()
	dropped, b.missed = b.missed, 0
	return dropped, true
}

// Limit returns a logger that drops what is too much for one [Bucket], and logs how much.
// Loggers made from it share the bucket.
func Limit(log *slog.Logger) *slog.Logger {
	return slog.New(handler{log.Handler(), &shared{}})
}

type shared struct {
	sync.Mutex
	Bucket
}

func (s *shared) allow(now time.Time) (dropped int, ok bool) {
	s.Lock()
	defer s.Unlock()
	return s.Allow(now)
}

type handler struct {
	slog.Handler
	lines *shared
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, record slog.Record) error {
	dropped, ok := h.lines.allow(time.Now())
	if !ok {
		return nil
	}
	if dropped > 0 {
		note := slog.NewRecord(record.Time, slog.LevelWarn, "dropped log lines: too many", 0)
		note.AddAttrs(slog.Int("lines", dropped))
		if err := h.Handler.Handle(ctx, note); err != nil {
			return err
		}
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.lines}
}
