//go:build unix

package proxy

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestACommandIsRunWithoutAShellAndItsOutputIsBounded(t *testing.T) {
	var log bytes.Buffer
	c := commander{slog.New(slog.NewTextHandler(&log, nil))}
	if err := c.run(t.Context(), command{argv: []string{"echo", "$HOME;", "a\x1bb"}}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), `$HOME; a\\x1bb`) {
		t.Errorf("the log is %q", log.String())
	}
	log.Reset()
	if err := c.run(t.Context(), command{argv: []string{"sh", "-c", "yes | head -c 1000000"}, env: []string{path()}}); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "a command wrote"); n != maxLines {
		t.Errorf("%d lines were logged", n)
	}
}

func TestACommandThatFailsOrHangsSaysSo(t *testing.T) {
	c := commander{slog.New(slog.DiscardHandler)}
	err := c.run(t.Context(), command{argv: []string{"sh", "-c", "exit 3"}})
	if err == nil || err.Error() != `"sh" failed: exit status 3` {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err = c.run(ctx, command{argv: []string{"sh", "-c", "sleep 1000 & wait"}})
	if err == nil || !strings.Contains(err.Error(), "did not end in time") || time.Since(began) > patience {
		t.Errorf("got %v after %s", err, time.Since(began))
	}
}

func TestWhatACommandLeavesBehindDoesNotHoldItUp(t *testing.T) {
	var log bytes.Buffer
	c := commander{slog.New(slog.NewTextHandler(&log, nil))}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := c.run(ctx, command{argv: []string{"sh", "-c", "sleep 1000 & echo $!"}, env: []string{path()}})
	if err != nil || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
	_, line, _ := strings.Cut(log.String(), "line=")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}
