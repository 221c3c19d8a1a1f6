package agent

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestStreamsThatFailHandshakesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r status.Recorder
		var out logtest.Log
		var rules atomic.Bool
		seen := 0
		stop := watchStreams(&r, func() ([]secret.Status, bool) { return []secret.Status{{Name: "web.example.org"}}, rules.Load() }, out.Logger())
		defer stop()
		logs := func(title, want string) {
			t.Helper()
			time.Sleep(10 * streamsInterval)
			synctest.Wait()
			if got := out.String()[seen:]; strings.Count(got, "level=WARN") != min(len(want), 1) || !strings.Contains(got, want) {
				t.Errorf("%s: %q", title, got)
			}
			seen = len(out.String())
		}
		r.Stream(xds.Event[secret.Caller]{Kind: xds.Pushed, Stream: 1, Names: []string{"a.example.org"}})
		logs("without rules", "")
		rules.Store(true)
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
