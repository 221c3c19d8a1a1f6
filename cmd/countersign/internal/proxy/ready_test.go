package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// envoy answers as Envoy's /ready.
type envoy struct {
	mu     sync.Mutex
	asked  int
	answer string
	err    error
	slow   time.Duration
}

func (e *envoy) ask(ctx context.Context, method, path string) (string, error) {
	e.mu.Lock()
	e.asked++
	answer, err, slow := e.answer, e.err, e.slow
	e.mu.Unlock()
	if method+" "+path != "GET /ready" {
		return "", errors.New("asked " + method + " " + path)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	select {
	case <-time.After(slow):
		return answer, err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func withEnvoy(t *testing.T, e *envoy, test func(t *testing.T, w *world)) {
	t.Helper()
	begun(t, Config{Drain: Drain{Admin: "unix:admin", Time: time.Second}, Restart: Always, RestartLimit: 5}, func(t *testing.T, w *world) {
		w.p.ask = e.ask
		test(t, w)
	})
}

func TestReadyFollowsEnvoy(t *testing.T) {
	const unclear = "the proxy's admin address does not say that it is LIVE"
	unavailable := errors.New("503")
	for name, test := range map[string]struct {
		envoy *envoy
		want  string
	}{
		"live":         {&envoy{answer: "LIVE\n"}, ""},
		"initializing": {&envoy{answer: "PRE_INITIALIZING\n", err: unavailable}, "the proxy is PRE_INITIALIZING"},
		"failed":       {&envoy{answer: "DRAINING\n", err: unavailable}, "the proxy is DRAINING"},
		"away":         {&envoy{err: errors.New("no such file")}, unclear},
		"hangs":        {&envoy{answer: "LIVE\n", slow: time.Hour}, unclear},
		"lies":         {&envoy{answer: "LIVE\n", err: unavailable}, unclear},
		"is another":   {&envoy{answer: "<html>LIVE"}, unclear},
		"floods":       {&envoy{answer: strings.Repeat("LIVE\n", 1000)}, unclear},
	} {
		t.Run(name, func(t *testing.T) {
			withEnvoy(t, test.envoy, func(t *testing.T, w *world) {
				began := time.Now()
				if got := w.p.NotReady(t.Context()); got != test.want || time.Since(began) > adminTimeout {
					t.Errorf("got %q after %s, want %q", got, time.Since(began), test.want)
				}
			})
		})
	}
}

func TestManyWhoAskCostEnvoyOneQuestion(t *testing.T) {
	e := &envoy{answer: "INITIALIZING\n", err: errors.New("503"), slow: time.Second}
	withEnvoy(t, e, func(t *testing.T, w *world) {
		answers := make(chan string, 100)
		for range 99 {
			go func() { answers <- w.p.NotReady(t.Context()) }()
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got := w.p.NotReady(gone); got != "the caller has left" {
			t.Errorf("who has gone away gets %q", got)
		}
		for range 99 {
			if got := <-answers; got != "the proxy is INITIALIZING" {
				t.Errorf("one gets %q", got)
			}
		}
		e.mu.Lock()
		e.answer, e.err, e.slow = "LIVE\n", nil, 0
		e.mu.Unlock()
		if got := w.p.NotReady(t.Context()); got != "the proxy is INITIALIZING" || e.asked != 1 {
			t.Errorf("at once it is %q after %d questions", got, e.asked)
		}
		time.Sleep(readyFor)
		if got := w.p.NotReady(t.Context()); got != "" || e.asked != 2 {
			t.Errorf("later it is %q after %d questions", got, e.asked)
		}
	})
}

func TestWhoGoesAwayLeavesTheQuestionToOthers(t *testing.T) {
	e := &envoy{answer: "LIVE\n", slow: time.Second}
	withEnvoy(t, e, func(t *testing.T, w *world) {
		first, cancel := context.WithCancel(t.Context())
		asked, joined := make(chan string), make(chan string)
		go func() { asked <- w.p.NotReady(first) }()
		synctest.Wait()
		go func() { joined <- w.p.NotReady(t.Context()) }()
		synctest.Wait()
		cancel() // the first no longer wants to know; the other still does
		if got := <-joined; got != "" {
			t.Errorf("the other gets %q", got)
		}
		<-asked
	})
}

func TestAnswerOfAnEarlierProcessDoesNotCount(t *testing.T) {
	e := &envoy{answer: "LIVE\n"}
	withEnvoy(t, e, func(t *testing.T, w *world) {
		if got := w.p.NotReady(t.Context()); got != "" {
			t.Fatalf("it is %q", got)
		}
		w.last().end(exit{code: 1})
		synctest.Wait()
		if got := w.p.NotReady(t.Context()); got != "the proxy is not running: backoff" || e.asked != 1 {
			t.Errorf("after its end it is %q, %d questions", got, e.asked)
		}
		var r readiness
		says := func(why string) func(context.Context) string { return func(context.Context) string { return why } }
		if got := []string{r.of(t.Context(), 1, says("")), r.of(t.Context(), 1, says("x")), r.of(t.Context(), 2, says("x"))}; strings.Join(got, ",") != ",,x" {
			t.Errorf("the answers are %q", got)
		}
	})
}

func TestWithoutAdminAddressOnlyTheEndIsKnown(t *testing.T) {
	begun(t, Config{Restart: Always, RestartLimit: 5}, func(t *testing.T, w *world) {
		if got := w.p.NotReady(t.Context()); got != "" {
			t.Errorf("it is %q", got)
		}
		w.last().end(exit{code: 1})
		synctest.Wait()
		if got := w.p.NotReady(t.Context()); got != "" {
			t.Errorf("while it is restarted it is %q", got)
		}
	})
}
