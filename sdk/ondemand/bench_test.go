package ondemand_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

// benchSet is a Set with the system's clock, which refuses each name.
func benchSet(b *testing.B, decider ask.Decider) *ondemand.Set {
	b.Helper()
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{})}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	rule := shop()
	rule.Ask = decider
	s, err := ondemand.New(ondemand.Config{Manager: m, Rules: []ondemand.Rule{rule}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close(); m.Close() })
	return s
}

// BenchmarkRefusal is what a name costs that is refused: by its rule, by an answer that is
// remembered, or by a question.
func BenchmarkRefusal(b *testing.B) {
	never := &asker{say: func(context.Context, string) (bool, error) { return false, nil }}
	for _, bench := range []struct {
		name    string
		pattern string
	}{{"no rule", "n%d.example.org"}, {"remembered", "same.shop.example.org"}, {"asked", "n%d.shop.example.org"}} {
		b.Run(bench.name, func(b *testing.B) {
			memory := ask.Remember(never, ask.Limits{PerSecond: 1e9, Burst: 1e9, Yes: time.Hour, No: time.Hour})
			b.Cleanup(memory.Close)
			s := benchSet(b, memory)
			_, _ = memory.Allowed(b.Context(), "same.shop.example.org")
			for i := range b.N {
				name := bench.pattern
				if bench.name != "remembered" {
					name = fmt.Sprintf(name, i)
				}
				if _, err := secret.Get(b.Context(), s, secret.Caller{}, name); err == nil {
					b.Fatal("it is served")
				}
			}
		})
	}
}

// BenchmarkRestart is a start with 10,000 names in a log, until the first is served and until all
// are.
func BenchmarkRestart(b *testing.B) {
	const n = 10_000
	quiet := slog.New(slog.DiscardHandler)
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{})}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
		Log:         quiet,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	folder := b.TempDir() + "/state"
	start := func() (s *ondemand.Set, stop func()) {
		kept, err := state.OpenLog(folder, []byte(logKey), quiet)
		if err != nil {
			b.Fatal(err)
		}
		if s, err = ondemand.New(ondemand.Config{Manager: m, Rules: []ondemand.Rule{shop()}, Storage: kept, Log: quiet}); err != nil {
			b.Fatal(err)
		}
		return s, func() { s.Close(); kept.Close() }
	}
	get := func(s *ondemand.Set, from, to int) {
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				for i := from + worker; i < to; i += 16 {
					if _, err := secret.Get(b.Context(), s, secret.Caller{}, fmt.Sprintf("n%d.shop.example.org", i)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	s, stop := start()
	get(s, 0, n)
	stop()
	var first, whole time.Duration
	for b.Loop() {
		began := time.Now()
		s, stop := start()
		get(s, 0, 1)
		first += time.Since(began)
		get(s, 1, n)
		whole += time.Since(began)
		stop()
	}
	b.ReportMetric(first.Seconds()*1000/float64(b.N), "ms-to-first")
	b.ReportMetric(whole.Seconds()/float64(b.N), "s-to-all")
}
