package xds

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// picky is a client that refuses each response with a content that it cannot load.
type picky struct {
	speaker
	bad   map[string]bool
	holds map[string]bool
	tries int // responses
	most  int // resources in the largest
}

func newPicky(c speaker, bad ...string) *picky {
	p := &picky{speaker: c, bad: map[string]bool{}, holds: map[string]bool{}}
	for _, content := range bad {
		p.bad[content] = true
	}
	return p
}

// answer answers one response as the client would, and reports whether there was one.
func (p *picky) answer() bool {
	got, ok := p.takes()
	if !ok {
		return false
	}
	p.tries, p.most = p.tries+1, max(p.most, len(got))
	if slices.ContainsFunc(got, func(content string) bool { return p.bad[content] }) {
		p.refuse("Failed to load certificate chain")
		return true
	}
	for _, content := range got {
		p.holds[content] = true
	}
	p.accept()
	return true
}

// settle answers until nothing comes any more and returns what the client holds.
func (p *picky) settle() []string {
	for p.answer() {
	}
	p.silent()
	return slices.Sorted(maps.Keys(p.holds))
}

func numbered(n int) (names, contents []string) {
	for i := range n {
		name := fmt.Sprintf("n%04d", i)
		names, contents = append(names, name), append(contents, name+"=1")
	}
	return names, contents
}

func without(contents []string, bad ...string) []string {
	return slices.DeleteFunc(slices.Clone(contents), func(c string) bool { return slices.Contains(bad, c) })
}

// log2 rounds up.
func log2(n int) int { return bits.Len(uint(n - 1)) }

func TestOneResourceThatAClientRefusesTakesNoOtherWithIt(t *testing.T) {
	for _, n := range []int{2, 3, 7, 64, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
				names, all := numbered(n)
				b.source.have(names...)
				p := newPicky(c, all[n/3])
				p.want(names...)
				if got, want := p.settle(), without(all, all[n/3]); !slices.Equal(got, want) {
					t.Errorf("the client holds %d of %d: %.200q", len(got), n, got)
				}
				if most := 2*log2(n) + 2; p.tries > most {
					t.Errorf("%d responses, want %d at most", p.tries, most)
				}
				left := b.seen(Nacked)
				if last := left[len(left)-1]; last.Left != 1 || len(last.Client.Names) != 1 {
					t.Errorf("the last NACK was notified as %+v, want one resource at fault", last)
				}
				// It is replaced by one that the client takes, and by nothing else.
				b.source.set(names[n/3], "2")
				p.gets(names[n/3] + "=2")
				p.accept()
				p.silent()
				if acks := b.seen(Acked); acks[len(acks)-1].Left != 0 {
					t.Errorf("the last ACK was notified as %+v, want nothing refused", acks[len(acks)-1])
				}
			})
		})
	}
}

func TestAttacksOnTheTrial(t *testing.T) {
	const n = 16
	names, all := numbered(n)
	for name, story := range map[string]func(t *testing.T, b *bench, p *picky){
		"two at fault": func(t *testing.T, _ *bench, p *picky) {
			p.bad[all[3]], p.bad[all[11]] = true, true
			p.holdsAll(t, without(all, all[3], all[11]))
		},
		"all but one at fault": func(t *testing.T, b *bench, p *picky) {
			p.settle() // the client has accepted something before
			for i, name := range names {
				p.bad[name+"=2"] = i != 5
				b.source.set(name, "2")
			}
			p.settle()
			if !p.holds[names[5]+"=2"] {
				t.Error("the good one was not delivered")
			}
		},
		"seven of eight at fault on a fresh stream": func(t *testing.T, _ *bench, p *picky) {
			for _, content := range all[:7] {
				p.bad[content] = true
			}
			p.holdsAll(t, all[7:])
		},
		"everything is refused": func(t *testing.T, b *bench, p *picky) {
			for _, content := range all {
				p.bad[content] = true
			}
			p.holdsAll(t, nil)
			if most := maxGuesses * (log2(n) + 2); p.tries > most {
				t.Errorf("%d responses for a client that refuses everything, want %d at most", p.tries, most)
			}
			p.tries = 0
			p.bad[names[0]+"=2"] = true
			b.source.set(names[0], "2")
			p.settle()
			if p.tries != 1 {
				t.Errorf("%d responses for one change, want 1", p.tries)
			}
		},
		"what was not tried of a client that refused everything, once it accepts something": func(t *testing.T, b *bench, p *picky) {
			for _, content := range all {
				p.bad[content] = true
			}
			p.settle()
			for _, content := range all[8:] {
				delete(p.bad, content)
			}
			refusedAlone := 0
			for _, name := range names[8:] {
				if nacks := b.seen(Nacked); slices.ContainsFunc(nacks, func(e Event[string]) bool { return slices.Equal(e.Client.Names, []string{name}) }) {
					refusedAlone++
				}
			}
			b.source.set(names[0], "2")
			if got, want := len(p.settle()), 1+8-refusedAlone; got != want {
				t.Errorf("the client holds %d, want %d", got, want)
			}
		},
		"the one at fault changes while it is looked for": func(t *testing.T, b *bench, p *picky) {
			p.bad[all[3]] = true
			p.answer() // refuses all
			b.source.set(names[3], "2")
			p.holdsAll(t, append(without(all, all[3]), names[3]+"=2"))
		},
		"another changes while it is looked for": func(t *testing.T, b *bench, p *picky) {
			p.bad[all[3]] = true
			p.answer()
			for i := range 40 {
				p.answer()
				b.source.set(names[7], fmt.Sprint(i+2))
			}
			p.settle()
			for _, want := range append(without(all, all[3], all[7]), names[7]+"=41") {
				if !p.holds[want] {
					t.Errorf("%s was not delivered", want)
				}
			}
		},
		"it becomes worse while it is looked for": func(t *testing.T, b *bench, p *picky) {
			p.bad[all[3]], p.bad[names[9]+"=2"] = true, true
			p.answer()
			p.answer()
			b.source.set(names[9], "2")
			p.settle()
			for _, want := range without(all, all[3], all[9]) {
				if !p.holds[want] {
					t.Errorf("%s was not delivered", want)
				}
			}
		},
		"it is removed while it is looked for": func(t *testing.T, b *bench, p *picky) {
			p.bad[all[3]] = true
			p.answer()
			b.source.remove(names[3])
			p.answer()
			b.source.remove(names[4])
			p.settle()
			for _, want := range without(all, all[3], all[4]) {
				if !p.holds[want] {
					t.Errorf("%s was not delivered", want)
				}
			}
		},
		"a try is never answered": func(t *testing.T, b *bench, p *picky) {
			p.bad[all[3]] = true
			p.answer()
			if _, ok := p.takes(); !ok {
				t.Error("nothing is tried")
			}
			p.silentFor(time.Hour) // one try at a time
			b.source.set(names[7], "2")
			if got, _ := p.takes(); len(got) != 1 || got[0] != names[7]+"=2" {
				t.Errorf("got %v, want what changed", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
				b.source.have(names...)
				p := newPicky(c)
				p.want(names...)
				story(t, b, p)
			})
		})
	}
}

func (p *picky) holdsAll(t *testing.T, want []string) {
	t.Helper()
	slices.Sort(want)
	if got := p.settle(); !slices.Equal(got, want) {
		t.Errorf("the client holds %v, want %v", got, want)
	}
}

// A gateway that restarts gets the same content again, and so does its next stream.
func TestCulpritIsSentByItselfOnTheNextStream(t *testing.T) {
	inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
		names, all := numbered(100)
		b.source.have(names...)
		p := newPicky(c, all[42])
		p.want(names...)
		p.settle()
		for who, tries := range map[string]int{"caller": 2, "another": log2(100)} {
			next := newPicky(&listing{client: b.dial(who)}, all[42])
			next.want(names...)
			next.holdsAll(t, without(all, all[42]))
			if who == "caller" && next.tries != tries || who == "another" && next.tries < tries {
				t.Errorf("%d responses for %s, want %d", next.tries, who, tries)
			}
		}
		// A client that loads it now gets it.
		able := newPicky(b.dialDelta("caller"))
		able.want(names...)
		able.holdsAll(t, all)
		b.source.set(names[42], "2")
		fixed := newPicky(b.dialDelta("caller"))
		fixed.want(names...)
		fixed.settle()
		if fixed.tries != 1 {
			t.Errorf("%d responses after the content changed, want 1", fixed.tries)
		}
	})
}

// Else the stream counts as refusing until it ends.
func TestWhatIsGoneIsNoLongerRefused(t *testing.T) {
	for name, leave := range map[string]func(b *bench, c speaker){
		"removed":      func(b *bench, _ speaker) { b.source.remove("a") },
		"unsubscribed": func(_ *bench, c speaker) { c.unwant("a") },
	} {
		t.Run(name, func(t *testing.T) {
			inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
				b.source.have("a", "b")
				p := newPicky(c, "a=1")
				p.want("a", "b")
				p.settle()
				leave(b, c)
				if got := b.seen(Cleared); len(got) != 1 || got[0].Left != 0 || got[0].TypeURL != thingURL {
					t.Errorf("got %+v, want one event with nothing left", got)
				}
				if name == "removed" { // in delta the client is informed
					p.answer()
					b.source.have("a")
					p.settle()
					if nacks := b.seen(Nacked); nacks[len(nacks)-1].Left != 1 || len(nacks) != 3 {
						t.Errorf("got %+v, want the third NACK once it is back", nacks)
					}
				}
			})
		})
	}
}

func TestTrialIsLoggedOnceWithItsCulprit(t *testing.T) {
	inEachDialect(t, func(t *testing.T, b *bench, c speaker) {
		names, all := numbered(200)
		b.source.have(names...)
		p := newPicky(c, all[42])
		p.want(names...)
		p.settle()
		log := b.logged()
		if n := strings.Count(log, "level=WARN"); n != 2 {
			t.Errorf("%d warnings, want one for the response and one for the one at fault: %s", n, log)
		}
		if !strings.Contains(log, "names="+names[42]+" ") {
			t.Errorf("the log does not name the one at fault: %s", log)
		}
	})
}

// What the trial remembers is bounded, whatever a client does.
func TestTrialDoesNotGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		names, _ := numbered(20)
		b.source.have(names...)
		for _, name := range names { // each is known to be refused
			c := b.dialDelta("caller")
			c.subscribe(name)
			c.gets(name + "=1")
			c.refuse("no")
		}
		c := b.dialDelta("caller")
		c.subscribe(names...)
		if got, _ := c.takes(); len(got) != 1 {
			t.Fatalf("got %v, want one by itself", got)
		}
		for range 500 { // it is never answered
			c.unsubscribe(names...)
			c.subscribe(names...)
		}
		var kept int
		for s := range b.engine.open {
			kept = max(kept, s.(interface{ kept() int }).kept())
		}
		if kept < len(names) || kept > 3*len(names)+16 {
			t.Errorf("%d entries are kept of %d names", kept, len(names))
		}
	})
}

func (r *runner[C, Q, R]) kept() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := any(r.machine).(*delta)
	if !ok || m.types[0].trial == nil {
		return 0
	}
	t := m.types[0].trial
	return len(t.now) + len(t.bad) + len(t.rest) + len(t.apart)
}

func TestRememberedCulpritsAreBounded(t *testing.T) {
	var c callers
	now := time.Now()
	for i := range 3000 {
		for j := range 3 {
			c.remember(fmt.Sprint(i), hashOf(0, &Resource{Name: fmt.Sprint(j)}), now)
		}
	}
	for i := range 1000 {
		c.remember("0", hashOf(0, &Resource{Name: fmt.Sprint(i)}), now)
	}
	if n, mine := len(c.each), len(c.each["0"].refusedHashes); n > maxCallers+1 || mine > maxRefusedHashes {
		t.Errorf("%d callers are remembered, and %d contents for one", n, mine)
	}
	last := hashOf(0, &Resource{Name: "999"})
	_, mine := c.refusedBy("0")[last]
	if _, others := c.refusedBy("1")[last]; !mine || others {
		t.Error("the last content of a caller is forgotten, or taken for another's")
	}
}

// lagging answers each response only once the next is there, or none comes, as a client does
// that has several in its buffer.
func lagging[Q, R any](p *peer[Q, R], answer func(contents []string)) (answered int) {
	var queue []R
	for {
		if _, ok := p.takes(); ok {
			queue = append(queue, p.last)
		} else if len(queue) == 0 {
			return answered
		}
		if _, more := p.takes(); more {
			queue = append(queue, p.last)
		}
		p.last, queue = queue[0], queue[1:]
		answered++
		answer(p.contents(p.last))
	}
}

// A response that does not fit is followed by another before the client has answered. Its
// answer is not that of a response that is tried meanwhile.
func TestLateAnswerIsNotTakenForThatOfATry(t *testing.T) {
	big := strings.Repeat("x", maxResponse/16)
	const n = 30
	t.Run("everything is refused", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			names, _ := numbered(n)
			for _, name := range names {
				b.source.put(&Resource{Name: name, Version: "1", Body: bodyOf(name + big)})
			}
			c := b.dialDelta("caller")
			c.subscribe(names...)
			if got, most := lagging(c.peer, func([]string) { c.refuse("no") }), maxGuesses*(log2(n)+2); got > most {
				t.Errorf("%d responses for a client that refuses everything, want %d at most", got, most)
			}
		})
	})
	t.Run("one is refused", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			names, _ := numbered(n)
			for _, name := range names {
				b.source.put(&Resource{Name: name, Version: "1", Body: bodyOf(name + big)})
			}
			c := b.dialDelta("caller")
			c.subscribe(names...)
			holds := map[string]bool{}
			lagging(c.peer, func(got []string) {
				if slices.ContainsFunc(got, func(c string) bool { return strings.HasPrefix(c, names[3]) }) {
					c.refuse("no")
					return
				}
				for _, content := range got {
					holds[content] = true
				}
				c.accept()
			})
			if len(holds) != n-1 {
				t.Errorf("the client holds %d of %d", len(holds), n-1)
			}
		})
	})
}

// Envoy takes listeners and clusters one by one in both dialects: sent again, a good cluster would
// only hold up the types after it.
func TestCompleteTypeHasNoTrial(t *testing.T) {
	for name, dial := range map[string]func(*bench) speaker{
		"state of the world": func(b *bench) speaker { return &listing{client: b.dial("caller")} },
		"delta":              func(b *bench) speaker { return b.dialDelta("caller") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newMemorySource()
				source.have("a", "b")
				b := newBench(t, Config[string]{Types: []Type[string]{{URL: thingURL, Source: source, Complete: true}}}, source)
				c := dial(b)
				c.want("a", "b")
				c.gets("a=1", "b=1")
				c.refuse("a is bad")
				c.silent()
				b.engine.Close(nil)
			})
		})
	}
}
