package xds

import (
	"context"
	"flag"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func TestMain(m *testing.M) {
	// A story of the model takes a fraction of a millisecond. The command line has
	// the last word.
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

type callerKey struct{}

// bench is an engine with a source and what it told.
type bench struct {
	t      *testing.T
	engine *Engine[string]
	source *memorySource
	mu     sync.Mutex
	events []Event[string]
	log    logtest.Log
}

// inBubble runs a story in synthetic time with an engine of one type; nothing of
// the engine may be left when it ends.
func inBubble(t *testing.T, story func(t *testing.T, b *bench), names ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config[string]{}, newMemorySource(names...))
		story(t, b)
		b.engine.Close(nil)
		if left := b.source.watched(); len(left) > 0 {
			t.Errorf("watches left after Close: %v", left)
		}
	})
}

func newBench(t *testing.T, cfg Config[string], s *memorySource) *bench {
	t.Helper()
	b := &bench{t: t, source: s}
	if cfg.Types == nil {
		cfg.Types = []Type[string]{{URL: thingURL, Source: s}}
	}
	if cfg.Admit == nil {
		cfg.Admit = func(ctx context.Context) (string, error) {
			caller, _ := ctx.Value(callerKey{}).(string)
			return caller, nil
		}
	}
	cfg.Observe = b.observe
	cfg.Log = slog.New(slog.NewTextHandler(&b.log, nil))
	engine, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.engine = engine
	return b
}

func (b *bench) observe(e Event[string]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bench) seen(kind EventKind) (events []Event[string]) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

func (b *bench) logged() string { return b.log.String() }
