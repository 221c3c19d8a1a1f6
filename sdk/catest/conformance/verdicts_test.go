//go:build e2e

package conformance

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
)

var runs = flag.Int("runs", 20, "how often to run each check against its mutant and against a good provider")

var only = flag.String("only", "", "run only checks whose id matches this regular expression, and those that they build on")

// atOnce is how many providers are tested in parallel. They mostly wait.
const atOnce = 12

// Run each check many times, as an author runs it, against the provider that breaks its rule and
// against a good one. No verdict may be wrong.
func TestNoVerdictDependsOnTiming(t *testing.T) {
	var all sync.WaitGroup
	wrong, done := newTally(), newTally()
	slots := make(chan struct{}, atOnce)
	judge := func(kit Kit, subject Subject, checks []Check, mutant string) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s := NewSession(kit, subject)
			defer s.Close()
			for _, check := range checks {
				name, breaks := fmt.Sprintf("%s of a good provider (%s)", check.ID, subject.Form), check.ID == checkOf(mutant)
				do := s.Do
				if breaks {
					name, do = "the mutant "+mutant, s.doTimely
				}
				result := do(during(t, check), check)
				done.add(name)
				if (result.Outcome == Failed) != breaks {
					wrong.add(name)
					t.Errorf("%s: %s %s", name, result.Outcome, result.Seen)
				}
			}
		})
	}
	chosen := regexp.MustCompile(*only).MatchString
	for n := range *runs {
		judge(goodKit(), Value(good()), upTo(chosen), "")
		judge(goodKit(), OverWire(good()), upTo(chosen), "")
		for name, make := range mutants() { // new ones: some count their calls
			if chosen(name) {
				judge(mutantsKit(name), Value(make), upTo(is(checkOf(name))), name)
			}
		}
		for id, spoil := range spoilers() {
			if chosen(id) {
				judge(goodKit(), spoiledWire(spoil), upTo(is(id)), id)
			}
		}
		if (n+1)%100 == 0 {
			t.Logf("%d runs", n+1)
		}
	}
	all.Wait()
	t.Logf("%d kinds of verdict, each %d times and more", len(done.count), *runs)
	for _, name := range slices.Sorted(maps.Keys(wrong.count)) {
		t.Errorf("%s: %d of %d are wrong", name, wrong.count[name], done.count[name])
	}
}

// doTimely is [Session.Do] for a mutant. On a machine that stands still, the fault of a mutant may come too
// late for the check, so a pass is tried again.
func (s *Session) doTimely(ctx context.Context, check Check) Result {
	for attempt := 1; ; attempt++ {
		stood := stalls()
		result := s.Do(ctx, check)
		if late := stood(); result.Outcome == Failed || !late || attempt == maxAttempts {
			return result
		}
	}
}

// tally counts by name.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func newTally() *tally { return &tally{count: map[string]int{}} }

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[name]++
}
