package secret_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// asking is a log handler that reads the Manager at each line, as one does that adds its
// state.
type asking struct {
	slog.Handler
	manager atomic.Pointer[secret.Manager]
	lines   atomic.Int64
}

func (*asking) Enabled(context.Context, slog.Level) bool { return true }
func (a *asking) WithAttrs([]slog.Attr) slog.Handler     { return a }

func (a *asking) Handle(context.Context, slog.Record) error {
	if m := a.manager.Load(); m != nil {
		m.Status()
		_, _ = m.Peek(agent, "default")
		m.Has(agent, "ROOTCA", "")
		a.lines.Add(1)
	}
	return nil
}

func TestLogGoesToTheDefaultLoggerByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		was := slog.Default()
		slog.SetDefault(log.Logger())
		defer slog.SetDefault(was)
		e := newEngine(t, func(c *secret.Config) {
			c.Log = nil
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: ca.ErrDenied})
		})
		e.notReady("default")
		if !strings.Contains(log.String(), "cannot renew certificate") {
			t.Errorf("whoever waits learns nothing: %s", &log)
		}
	})
}

func TestLogHandlerMayReadTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := &asking{Handler: slog.DiscardHandler}
		e := newEngine(t, func(c *secret.Config) { c.Log = slog.New(handler) })
		handler.manager.Store(e.Manager)
		e.held("default")
		e.ca.Rotate()
		after(ttl)
		e.ca.Always(catest.Fault{Err: ca.ErrUnavailable})
		after(2 * ttl)
		e.Kick("")
		after(time.Minute)
		if n := handler.lines.Load(); n < 10 {
			t.Errorf("only %d lines were logged", n)
		}
	})
}
