package share

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/internal/rotation"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	dur  = 15 * time.Second
	pool = "ca"
)

// clocks are those of one machine: each runs at its own rate, and the wall clock is set anew.
type clocks struct {
	mono, wall time.Duration
	rate       float64
}

// site is a member with its machine, and a write of it that is on its way.
type site struct {
	*machine
	clocks
	want    int
	stopped bool
	next    *record
	version int
	sent    time.Duration
}

func (s *site) at() rotation.Time {
	return rotation.Time{Mono: begin.Add(s.mono), Wall: begin.Add(s.wall)}
}

// world is a store and all who use it, or did.
type world struct {
	tb      rapid.TB
	r       *rapid.T // nil in a story without chance
	record  record
	version int
	sites   []*site
	made    int
	now     time.Duration
}

func (w *world) join() {
	w.made++
	s := &site{machine: newMachine(fmt.Sprint("member ", w.made), dur), want: rapid.IntRange(0, 2*whole).Draw(w.r, "want")}
	s.rate = rapid.SampledFrom([]float64{1, 0.95, 1.05}).Draw(w.r, "rate")
	s.wall = time.Duration(rapid.IntRange(-100, 100).Draw(w.r, "off")) * time.Minute
	w.sites = append(w.sites, s)
}

// pass moves time. A machine that is suspended keeps its wall clock alone.
func (w *world) pass(d time.Duration, suspended *site) {
	w.now += d
	for _, s := range w.sites {
		mine := time.Duration(float64(d) * s.rate)
		s.wall += mine
		if s != suspended {
			s.mono += mine
		}
	}
}

// begin reads the record and has a write on its way.
func (s *site) begin(w *world) {
	next := s.propose(s.at(), w.record, map[string]int{pool: s.want})
	s.next, s.version, s.sent = &next, w.version, s.look(s.at())
}

// arrive takes the write at the store; it hears of that if the answer is not lost.
func (s *site) arrive(w *world, answered bool) {
	if s.next == nil {
		return
	}
	if s.version == w.version {
		w.record, w.version = s.next.clone(), w.version+1
		if answered {
			s.took(s.sent)
		}
	}
	s.next = nil
}

// has is what it may use now, also if it is stopped: it may go on at once. A look that only the
// test takes is none.
func (s *site) has() int {
	copied := *s.machine
	return copied.share(s.at(), pool)
}

func (w *world) uses() (sum int) {
	for _, s := range w.sites {
		sum += s.has()
	}
	return sum
}

func (w *world) check() {
	if sum := w.uses(); sum > whole {
		w.tb.Fatalf("after %s %d of %d parts are used", w.now, sum, whole)
	}
	if err := w.record.check(); w.record.Generation != "" && err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) one(story string) *site {
	return w.sites[rapid.IntRange(0, len(w.sites)-1).Draw(w.r, story)]
}

// writes has one member write, in one of the ways in which that can go.
func (w *world) writes(s *site) {
	if s.stopped {
		return
	}
	s.arrive(w, true) // one that was on its way
	s.begin(w)
	how := "well"
	if w.r != nil {
		how = rapid.SampledFrom([]string{"well", "well", "well", "unheard", "late", "lost"}).Draw(w.r, "how")
	}
	switch how {
	case "well":
		s.arrive(w, true)
	case "unheard":
		s.arrive(w, false)
	case "lost":
		s.next = nil
	}
}

// beats lets all who run write in turn.
func (w *world) beats(n int, suspended *site) {
	for range n {
		for _, s := range w.sites {
			if s != suspended {
				w.writes(s)
				w.check()
			}
			w.pass(dur/time.Duration(beats*len(w.sites)), suspended)
			w.check()
		}
	}
}

func (w *world) leaves(s *site) {
	if next, named := s.leave(w.record); named {
		w.record, w.version = next, w.version+1
	}
}

func (w *world) some(what string, most int) int { return rapid.IntRange(1, most).Draw(w.r, what) }

var happenings = map[string]func(*world){
	"joins": func(w *world) {
		if len(w.sites) < 5 {
			w.join()
		}
	},
	"beats": func(w *world) { w.beats(w.some("beats", 2*beats), nil) },
	"wants": func(w *world) { w.one("who").want = rapid.IntRange(0, 2*whole).Draw(w.r, "want") },
	"is stopped": func(w *world) {
		s := w.one("who")
		s.stopped = true
		w.beats(w.some("beats", 2*beats), nil)
		s.stopped = false
	},
	"is suspended": func(w *world) { w.beats(w.some("beats", 2*beats), w.one("who")) },
	"all are stopped": func(w *world) {
		w.pass(time.Duration(w.some("seconds", 60))*time.Second, nil)
	},
	"half an hour": func(w *world) {
		w.pass(floorFor/2, nil)
		w.beats(1, nil)
	},
	"leaves": func(w *world) {
		if s := w.one("who"); len(w.sites) > 1 {
			w.leaves(s)
		}
	},
	"dies": func(w *world) { // it may have written, and nobody goes on using its share
		if len(w.sites) > 1 {
			w.sites = w.sites[1:]
		}
	},
	"clock is put forward": func(w *world) { w.one("who").wall += time.Duration(w.some("seconds", 7200)) * time.Second },
	"clock is put back": func(w *world) {
		s := w.one("who")
		s.look(s.at())
		s.wall -= time.Hour
		s.look(s.at()) // it runs
	},
	"record is deleted": func(w *world) { w.record, w.version = record{}, w.version+1 },
}

func TestRandomEventsNeverExceedTheWhole(t *testing.T) {
	names := slices.Sorted(maps.Keys(happenings))
	rapid.Check(t, func(r *rapid.T) {
		w := &world{tb: r, r: r}
		w.join()
		w.join()
		for range 2 * beats {
			w.round()
		}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 30).Draw(r, "story") {
			happenings[name](w)
			w.check()
		}
		w.converges()
	})
}

// converges demands fair shares once all are well and what was before is forgotten.
func (w *world) converges() {
	for range 30 {
		w.round()
	}
	w.fair(0.96) // floors may be kept
	w.settle()
	w.fair(0.99)
	for _, s := range w.sites { // what it wants anew it has in three beats
		s.want = rapid.IntRange(0, 2*whole).Draw(w.r, "want")
	}
	for range 3 {
		w.round()
	}
	w.fair(0.99)
}

// settle passes the time for which anything of the past counts.
func (w *world) settle() {
	for range 20 {
		w.pass(floorFor/8, nil)
		w.round()
	}
	for range 2 * beats {
		w.round()
	}
}

// round is one beat of each member, one after the other.
func (w *world) round() {
	for _, s := range w.sites {
		s.stopped = false
		s.begin(w)
		s.arrive(w, true)
		w.check()
		w.pass(dur/time.Duration(beats*len(w.sites)), nil)
	}
}

// fair demands that nearly everything is used, and that a member with less than it wants has as
// much as the others.
func (w *world) fair(used float64) {
	if sum := w.uses(); float64(sum) < used*whole {
		w.tb.Fatalf("%d of %d parts are used", sum, whole)
	}
	for _, s := range w.sites {
		mine := s.has()
		for _, other := range w.sites {
			if more := other.has() - mine; mine < min(s.want, whole) && more > grain {
				w.tb.Fatalf("one that wants %d has %d, another has %d more", s.want, mine, more)
			}
		}
	}
}

func TestSharesFollowWhatIsWanted(t *testing.T) {
	for _, c := range []struct {
		wants, have []int
	}{
		{[]int{0}, []int{whole}},
		{[]int{whole, whole}, []int{5000, 5000}},
		{[]int{9000, 600}, []int{9200, 800}},                  // what is left is halved
		{[]int{whole, 600}, []int{9400, 600}},                 //
		{[]int{whole, 0}, []int{9800, 200}},                   // the least
		{[]int{whole, 2000, 6000}, []int{4000, 2000, 4000}},   //
		{[]int{0, 0, 0, 0}, []int{2500, 2500, 2500, 2500}},    //
		{[]int{whole, whole, whole}, []int{3333, 3333, 3333}}, //
	} {
		for i, have := range c.have {
			others := slices.Delete(slices.Clone(c.wants), i, i+1)
			if got := fair(whole, c.wants[i], others); got != have {
				t.Errorf("of %v the %dth gets %d, want %d", c.wants, i, got, have)
			}
		}
	}
}

func TestFairSharesNeverExceedTotal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		total := rapid.IntRange(0, whole).Draw(r, "total")
		wants := rapid.SliceOfN(rapid.IntRange(0, whole), 1, 20).Draw(r, "wants")
		sum := 0
		for i, want := range wants {
			sum += fair(total, want, slices.Delete(slices.Clone(wants), i, i+1))
		}
		if sum > total || total-sum > len(wants) {
			r.Fatalf("%d of %d", sum, total)
		}
	})
}

// two are members that have shared for a while.
func two(t *testing.T) (w *world, a, b *site) {
	t.Helper()
	w = &world{tb: t}
	for _, id := range []string{"a", "b"} {
		s := &site{machine: newMachine(id, dur), want: whole, clocks: clocks{rate: 1}}
		w.sites = append(w.sites, s)
	}
	w.settle()
	return w, w.sites[0], w.sites[1]
}

func TestFirstMembersWaitForWhatMayHaveBeenBefore(t *testing.T) {
	w := &world{tb: t, sites: []*site{{machine: newMachine("a", dur), want: whole, clocks: clocks{rate: 1}}}}
	for w.now < dur {
		if s := w.sites[0]; s.has() > 0 {
			t.Fatalf("it has %d after %s", s.has(), w.now)
		}
		w.round()
	}
	w.round()
	if s := w.sites[0]; s.has() != whole-floors {
		t.Errorf("it has %d after %s", s.has(), w.now)
	}
	w.settle()
	if s := w.sites[0]; s.has() != whole {
		t.Errorf("it has %d after %s", s.has(), w.now)
	}
}

func TestDeadMembersShareReturns(t *testing.T) {
	w, a, b := two(t)
	if a.has() != whole/2 || b.has() != whole/2 {
		t.Fatalf("%d and %d", a.has(), b.has())
	}
	b.stopped = true
	w.beats(beats+1, nil) // a Duration from its last sign, and one more
	if a.has() != whole-oneFloor || b.has() != oneFloor {
		t.Errorf("it has %d, the dead one %d", a.has(), b.has())
	}
	w.pass(floorFor, nil)
	w.beats(2, nil)
	if a.has() != whole || b.has() != 0 {
		t.Errorf("an hour later it has %d, the dead one %d", a.has(), b.has())
	}
}

func TestMemberThatLeavesGivesBackAtOnce(t *testing.T) {
	w, a, b := two(t)
	w.leaves(b)
	w.sites = w.sites[:1]
	w.round()
	if a.has() != whole || b.has() != 0 {
		t.Errorf("%d and %d", a.has(), b.has())
	}
}

// A store that is away: the share to its end, a floor for an hour, then nothing.
func TestShareEndsWhileTheStoreIsAway(t *testing.T) {
	w, a, _ := two(t)
	last := a.age(a.at())
	for _, c := range []struct {
		after time.Duration
		have  int
	}{{11 * time.Second, whole / 2}, {12 * time.Second, oneFloor}, {47 * time.Minute, oneFloor}, {48 * time.Minute, 0}, {100 * time.Hour, 0}} {
		w.pass(c.after-last, nil)
		last = c.after
		if a.has() != c.have {
			t.Errorf("after %s it has %d, want %d", c.after, a.has(), c.have)
		}
	}
}

func TestLostRecordGivesNoReplicaMore(t *testing.T) {
	w, a, b := two(t)
	w.record, w.version = record{}, w.version+1
	a.want, b.want = whole, 0
	w.round()
	w.round()
	if a.has() > whole/2 {
		t.Errorf("it has %d, and others may still have what they had", a.has())
	}
	for range 2 * beats {
		w.round()
	}
	if a.has() < whole*94/100 {
		t.Errorf("it has %d at last", a.has())
	}
}

func TestDamagedRecordIsRefused(t *testing.T) {
	for what, text := range map[string]string{
		"no JSON": "{", "no generation": `{"members":{}}`, "a text": `"x"`,
		"below zero":          `{"generation":"a","members":{"x":{"pools":{"ca":{"share":-1}}}}}`,
		"more than all":       `{"generation":"a","members":{"x":{"pools":{"ca":{"share":10001}}}}}`,
		"floor over share":    `{"generation":"a","members":{"x":{"pools":{"ca":{"share":1,"floor":2}}}}}`,
		"want beyond integer": fmt.Sprintf(`{"generation":"a","members":{"x":{"pools":{"ca":{"want":%d}}}}}`, math.MaxInt64),
	} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if r, err := parse(nil); err != nil || r.Generation != "" {
		t.Errorf("nothing: %+v, %v", r, err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"generation":"a","settled":true,"members":{"x":{"beat":1,"pools":{"ca":{"share":10,"floor":2,"want":5}}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parse(text)
		if err != nil {
			return
		}
		m := newMachine("me", dur)
		next := m.propose(rotation.Time{Mono: begin, Wall: begin}, r, map[string]int{pool: whole})
		if err := next.check(); err != nil && len(r.Members) < maxMembers {
			t.Error(err)
		}
		if s := next.Members["me"].Pools[pool].Share; s < 0 || s > whole {
			t.Errorf("it takes %d", s)
		}
	})
}
