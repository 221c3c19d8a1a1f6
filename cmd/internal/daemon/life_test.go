package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileChangedSinceItWasReadNeedsRestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, "a: 1")
	l := NewLife(file, map[string]string{"listen.tls": ":15012", "listen.plaintext": ""})
	l.WatchFile()
	if p := l.Report(); len(p.Problems()) > 0 || p.Machine.Config != file || len(p.Addresses) != 1 {
		t.Errorf("got %+v", p)
	}
	write(t, file, "a: 2")
	p := l.Report()
	if !slices.Equal(p.Restart, []string{"the configuration file"}) || len(p.Problems()) != 1 {
		t.Errorf("got %+v", p)
	}
	write(t, file, "a: 1")
	if p := l.Report(); len(p.Restart) > 0 {
		t.Errorf("the file is as it was, and a restart is pending for %q", p.Restart)
	}
}

func TestOnlyRegularFileIsReadAgain(t *testing.T) {
	t.Parallel()
	if _, ok := sumOf(os.DevNull); ok {
		t.Error("a device was read") // as a pipe, which would hang or be empty
	}
}

func TestReloadListsWhatWaitsForRestart(t *testing.T) {
	t.Parallel()
	l := NewLife("c.yaml", nil)
	l.Reloaded(time.Unix(1, 0), []string{"istio.listen"}, nil)
	l.Reloaded(time.Unix(2, 0), nil, errors.New("rules are wrong\x1b[2J")) // leaves what is pending
	p := l.Report()
	if !slices.Equal(p.Restart, []string{"istio.listen"}) || !strings.HasPrefix(p.Configuration.Refused, "rules are wrong") || strings.Contains(p.Configuration.Refused, "\x1b") {
		t.Errorf("got %+v", p)
	}
	if len(p.Problems()) != 2 {
		t.Errorf("got %+v", p.Problems())
	}
	l.Reloaded(time.Unix(3, 0), nil, nil)
	if p := l.Report(); len(p.Problems()) > 0 {
		t.Errorf("got %+v", p)
	}
}
