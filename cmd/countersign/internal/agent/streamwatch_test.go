package agent

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestStreamsThatFailHandshakesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r status.Recorder
		var out strings.Builder
		rules := false
		stop := watchStreams(&r, func() ([]secret.Status, bool) { return []secret.Status{{Name: "web.example.org"}}, rules }, slog.New(slog.NewTextHandler(&out, nil)))
		defer stop()
		logs := func(title, want string) {
			t.Helper()
			time.Sleep(10 * streamsInterval)
			synctest.Wait()
			if got := out.String(); strings.Count(got, "level=WARN") != min(len(want), 1) || !strings.Contains(got, want) {
				t.Errorf("%s: %q", title, got)
			}
			out.Reset()
		}
		r.Stream(xds.Event[secret.Caller]{Kind: xds.Pushed, Stream: 1, Names: []string{"a.example.org"}})
		logs("without rules", "")
		rules = true
		logs("state of the world", "by state of the world")
		logs("still", "")
		r.Stream(xds.Event[secret.Caller]{Kind: xds.Closed, Stream: 1})
		r.Stream(xds.Event[secret.Caller]{Kind: xds.Pushed, Stream: 2, Names: []string{"web.example.org"}})
		logs("a configured secret", "")
		for n := range uint64(150) {
			r.Stream(xds.Event[secret.Caller]{Kind: xds.Pushed, Stream: n + 3, Delta: true, Names: []string{"a.example.org"}})
		}
		logs("a stream each", "a stream for each name on demand, 150 now")
		logs("still", "")
	})
}
