package tokensource

import (
	"context"
	"log/slog"
	"testing"
)

func TestHeldTokensAreBounded(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler), Watch: func(ctx context.Context, _ func([]byte) error) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	defer func() { _ = s.Close() }()
	if n := s.KeepMany(10_000); n != 4096 {
		t.Errorf("%d are held", n)
	}
}
