//go:build unix

package agent

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
)

const goodKey = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func openWith(t *testing.T, m *metrics.Metrics, script string) (kept bool, log string, err error) {
	t.Helper()
	var text bytes.Buffer
	c := config.State{Dir: filepath.Join(t.TempDir(), "state"), KeyCommand: []string{"/bin/sh", "-c", script}}
	storage, err := openState(context.Background(), nil, c, m, slog.New(slog.NewTextHandler(&text, nil)))
	return storage != nil, text.String(), err
}

func TestCommandPrintsStateKey(t *testing.T) {
	if kept, log, err := openWith(t, metrics.New(&status.Recorder{}, (&providers{}).all), "echo "+goodKey); !kept || err != nil || log != "" {
		t.Errorf("got %v, %v\n%s", kept, err, log)
	}
}

func TestFailingKeyCommandDoesNotBlockStart(t *testing.T) {
	m := metrics.New(&status.Recorder{}, (&providers{}).all)
	kept, log, err := openWith(t, m, "echo "+goodKey+" >&2; echo "+goodKey+"; exit 3")
	if kept || err != nil || !strings.Contains(log, "exit status 3") {
		t.Errorf("got %v, %v\n%s", kept, err, log)
	}
	if strings.Contains(log, goodKey[:8]) {
		t.Error("the key is logged")
	}
	if n := stateFailures(t, m); n != 1 {
		t.Errorf("%v failures are counted", n)
	}
}

// stateFailures is the sum of those of all reasons.
func stateFailures(t *testing.T, m *metrics.Metrics) (sum float64) {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if family.GetName() == "countersign_state_failures_total" {
				sum += series.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestInvalidKeyCommandOutputIsWrongSetting(t *testing.T) {
	for script, says := range map[string]string{
		"true": "the key has 0 bytes", "yes": "more than 4096 bytes", "yes | head -c 100": "too regular", "echo " + goodKey[:31]: "32 random bytes",
	} {
		_, _, err := openWith(t, metrics.New(&status.Recorder{}, (&providers{}).all), script)
		if err == nil || !strings.Contains(err.Error(), "state.key_command /bin/sh: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", script, err, says)
		}
	}
	c := config.State{Dir: t.TempDir(), KeyCommand: []string{"/missing/program"}}
	if _, err := openState(context.Background(), nil, c, metrics.New(&status.Recorder{}, (&providers{}).all), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a program that is not there is no error")
	}
}
