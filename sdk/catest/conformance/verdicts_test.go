//go:build e2e

package conformance

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

var runs = flag.Int("runs", 20, "how often to run each check against its mutant and against a good provider")

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
				result := s.Do(during(t, check), check)
				name, breaks := fmt.Sprintf("%s of a good provider (%s)", check.ID, subject.Form), check.ID == checkOf(mutant)
				if breaks {
					name = "the mutant " + mutant
				}
				done.add(name)
				if (result.Outcome == Failed) != breaks {
					wrong.add(name)
					t.Errorf("%s: %s %s", name, result.Outcome, result.Seen)
				}
			}
		})
	}
	for n := range *runs {
		judge(goodKit(), Value(good()), Checks(), "")
		judge(goodKit(), OverWire(good()), Checks(), "")
		for name, make := range mutants() {
			judge(mutantsKit(name), Value(make), upTo(checkOf(name)), name)
		}
		for id, spoil := range spoilers() {
			judge(goodKit(), spoiledWire(spoil), upTo(id), id)
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

// upTo returns a check and all those that it builds on.
func upTo(id string) []Check {
	wanted := map[string]bool{id: true}
	all := Checks()
	for grew := true; grew; {
		before := len(wanted)
		for _, c := range all {
			for _, after := range c.After {
				wanted[after] = wanted[after] || wanted[c.ID]
			}
		}
		maps.DeleteFunc(wanted, func(_ string, is bool) bool { return !is })
		grew = len(wanted) > before
	}
	return slices.DeleteFunc(all, func(c Check) bool { return !wanted[c.ID] })
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
