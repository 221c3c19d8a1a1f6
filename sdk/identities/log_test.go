package identities_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// asking is a log handler that reads the Set at each line, as one does that adds its state.
type asking struct {
	slog.Handler
	set   atomic.Pointer[identities.Set]
	lines chan string
}

func (*asking) Enabled(context.Context, slog.Level) bool { return true }

func (a *asking) Handle(_ context.Context, r slog.Record) error {
	if set := a.set.Load(); set != nil {
		set.Counts()
		_, _ = set.Peek(secret.Caller{}, "ROOTCA")
		a.lines <- r.Message
	}
	return nil
}

// It runs on the real clock: a bubble does not notice that a lock is waited for.
func TestLogHandlerMayAskTheSet(t *testing.T) {
	var jump atomic.Int64
	e := newEngine(t, nil)
	handler := &asking{Handler: slog.DiscardHandler, lines: make(chan string, 100)}
	set, err := identities.New(identities.Config{
		Manager: e.manager, Certificate: secret.Spec{Authorities: []string{"test"}},
		Identify: identities.Identify{Claimed: e.claimed}, Log: slog.New(handler),
		Now: func() time.Time { return time.Now().Add(time.Duration(jump.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	handler.set.Store(set)
	await := func(words string) {
		t.Helper()
		for deadline := time.After(2 * time.Minute); ; {
			select {
			case line := <-handler.lines:
				if strings.Contains(line, words) {
					return
				}
			case <-deadline:
				t.Fatalf("no line has %q: the Set waits for its own log", words)
			}
		}
	}
	if _, err := set.Join(t.Context(), proxy, "claims nothing"); err == nil {
		t.Error("a token that claims nothing was admitted")
	}
	await("turned away")
	if _, err := set.Join(t.Context(), proxy, token("web")); err != nil {
		t.Fatal(err)
	}
	await("serving new certificate")
	if _, err := set.Join(t.Context(), proxy, "forged:web"); err != nil {
		t.Fatal(err)
	}
	await("cannot renew certificate")
	jump.Store(int64(time.Minute))
	go set.Kick() // it wakes the Set, which notices
	await("clock jumped")
	set.Close()
}
