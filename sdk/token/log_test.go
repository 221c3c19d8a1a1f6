package token_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

// asking is a log handler that needs a token itself, as one does that sends logs.
type asking struct {
	slog.Handler
	cache *token.Cache
	asked chan string
}

func (*asking) Enabled(context.Context, slog.Level) bool { return true }

func (a *asking) Handle(ctx context.Context, r slog.Record) error {
	other := asked
	other.Audience = "logs"
	_, _ = a.cache.ExchangeToken(ctx, other)
	r.Attrs(func(attr slog.Attr) bool { r.Message += " " + attr.Value.String(); return true })
	a.asked <- r.Message
	return nil
}

// refusing fails from the second exchange on, and quotes the token.
type refusing struct{ calls atomic.Int64 }

func (s *refusing) ExchangeToken(_ context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	if s.calls.Add(1) > 1 {
		return ca.ExchangedToken{}, ca.Errorf(ca.Unavailable, "no answer for %s", req.SubjectToken.Reveal())
	}
	return ca.ExchangedToken{AccessToken: "access", Expiry: time.Now().Add(time.Hour)}, nil
}

// It runs on the real clock: a bubble does not notice that a lock is waited for.
func TestLogHandlerMayUseTheCache(t *testing.T) {
	var ahead atomic.Int64
	handler := &asking{Handler: slog.DiscardHandler, asked: make(chan string, 10)}
	handler.cache = token.NewCache(&refusing{}, token.CacheOptions{
		Log: slog.New(handler), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	request := asked
	request.SubjectToken = "the-subject-token"
	if _, err := handler.cache.ExchangeToken(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(59 * time.Minute))
	go func() { _, _ = handler.cache.ExchangeToken(t.Context(), request) }()
	select {
	case line := <-handler.asked:
		if strings.Contains(line, "the-subject-token") || !strings.Contains(line, "no answer for (secret)") {
			t.Errorf("the log is %q", line)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the cache waits for its own log line")
	}
}
