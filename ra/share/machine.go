package share

import (
	"crypto/rand"
	"maps"
	"reflect"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

const (
	// whole is all of a quota, in parts.
	whole = 10_000
	// oneFloor is what a member keeps while nobody can tell, and floors what all of them keep.
	oneFloor = whole / 100
	floors   = 3 * oneFloor
	// floorFor is how long.
	floorFor = time.Hour
	// least is what those get together that want nothing: the first request must not wait for
	// a share.
	least = whole / 25
	// grain is what wants are rounded up to, or each little change would move all shares.
	grain = whole / 50
)

// machine is what one member knows of the others. It has no clock, no goroutine and no lock.
// Its owner reads the record, has it proposed anew, writes that, and says whether it was taken.
type machine struct {
	id  string
	dur time.Duration

	beat     uint64
	held     map[string]slice // at most what the record has, once written
	proposed map[string]slice
	wrote    bool          // once, at least
	sent     time.Duration // when the last write that succeeded was, by elapsed

	last    rotation.Time
	elapsed time.Duration // until last, for what is ours

	seen       map[string]sight
	generation string
	since      time.Time // monotonic: when the generation was first seen
	spoiled    time.Time // monotonic: since when the record has been of no use; zero if it is of use
}

// sight is the last sign of another member.
type sight struct {
	beat  uint64
	since time.Time // monotonic: when it was first seen
}

func newMachine(id string, dur time.Duration) *machine {
	return &machine{id: id, dur: dur, held: map[string]slice{}, seen: map[string]sight{}}
}

// good is how long something lasts for whom it belongs to; others wait for all of it.
func good(d time.Duration) time.Duration { return d - d/5 }

// share returns the parts of a pool that may be used now.
func (m *machine) share(at rotation.Time, pool string) int {
	if m.wrote && m.age(at) < good(m.dur) {
		return m.held[pool].Share
	}
	return m.floor(at, pool)
}

// floor returns those that may be used whether or not the record can be reached.
func (m *machine) floor(at rotation.Time, pool string) int {
	if m.wrote && m.age(at) < good(floorFor) {
		return m.held[pool].Floor
	}
	return 0
}

func (m *machine) age(at rotation.Time) time.Duration { return m.look(at) - m.sent }

// look returns the time that has passed by the clock that went further since the last look: one
// that is set back between two looks prolongs nothing.
func (m *machine) look(at rotation.Time) time.Duration {
	if !m.last.Mono.IsZero() {
		m.elapsed += max(0, at.Mono.Sub(m.last.Mono), at.Wall.Sub(m.last.Wall))
	}
	m.last = at
	return m.elapsed
}

// propose returns the record to write in place of the one that was found. What becomes less is
// less from now on; what becomes more, once that is written.
func (m *machine) propose(at rotation.Time, found record, wants map[string]int) record {
	next := m.observe(at.Mono, found)
	m.beat++
	m.proposed = map[string]slice{}
	for pool, want := range wants {
		s := m.slice(at, next, pool, want)
		m.proposed[pool] = s
		have := m.held[pool]
		m.held[pool] = slice{Share: min(have.Share, s.Share), Floor: min(have.Floor, s.Floor)}
	}
	next.Members[m.id] = member{Beat: m.beat, Pools: m.proposed}
	return next
}

// fresh returns for how long the last proposal need not be repeated while it stays the same: until then,
// a store may be away for a third of the Duration, and no share ends.
func (m *machine) fresh(at rotation.Time) time.Duration {
	if !m.wrote {
		return 0
	}
	return m.dur*11/30 - m.age(at)
}

// idle reports whether a proposal may be left out: it changes nothing but our beat, and the last one is
// fresh. Each write costs the store a transaction on each of its members.
func (m *machine) idle(at rotation.Time, found, next record) bool {
	before, there := found.Members[m.id]
	if !there || m.fresh(at) <= 0 {
		return false
	}
	next = next.clone()
	ours := next.Members[m.id]
	ours.Beat = before.Beat
	next.Members[m.id] = ours
	return reflect.DeepEqual(found, next)
}

// took records that the store took the proposal, which was sent at that look or later.
func (m *machine) took(sent time.Duration) {
	m.held, m.sent, m.wrote = maps.Clone(m.proposed), sent, true
}

// leave returns the record without this member, which uses nothing anymore, and false if the record
// does not name it: there is nothing to remove, and a record that does not exist is not created.
func (m *machine) leave(found record) (next record, named bool) {
	clear(m.held)
	m.proposed = map[string]slice{} // the answer to a write that was on its way may still come
	next = found.clone()
	_, named = next.Members[m.id]
	delete(next.Members, m.id)
	return next, named
}

// found returns the record to go by. One that is of no use counts as lost after a Duration: whoever
// wrote it may correct it until then.
func (m *machine) found(at rotation.Time, r record, err error) (record, error) {
	if err == nil {
		m.spoiled = time.Time{}
		return r, nil
	}
	if m.spoiled.IsZero() {
		m.spoiled = at.Mono
	}
	if at.Mono.Sub(m.spoiled) < m.dur {
		return r, err
	}
	return record{}, nil
}

// keep prolongs a share that is still good, as a record of a newer program says nothing of it that
// this one could read. A share that has ended stays ended: others may have it.
func (m *machine) keep(at rotation.Time) {
	if m.spoiled = (time.Time{}); m.wrote && m.age(at) < good(m.dur) {
		m.sent = m.look(at)
	}
}

// observe returns the record without what dead members had.
func (m *machine) observe(mono time.Time, found record) record {
	next := found.clone()
	next.Version = version
	if next.Generation == "" {
		next.Generation = rand.Text()[:8]
	}
	if next.Generation != m.generation {
		m.generation, m.since = next.Generation, mono
	}
	known := mono.Sub(m.since)
	next.Settled = next.Settled || known >= m.dur
	next.FloorsSettled = next.FloorsSettled || known >= floorFor
	for id, other := range next.Members {
		if id != m.id {
			m.see(mono, next, id, other)
		}
	}
	maps.DeleteFunc(m.seen, func(id string, _ sight) bool { _, there := next.Members[id]; return !there })
	return next
}

// see looks for a sign of another member. Without one for a while it loses what is over its
// floor, and that later.
func (m *machine) see(mono time.Time, next record, id string, other member) {
	last, known := m.seen[id]
	if !known || last.beat != other.Beat {
		last = sight{other.Beat, mono}
		m.seen[id] = last
	}
	quiet := mono.Sub(last.since)
	switch {
	case quiet >= floorFor || quiet >= m.dur && !other.hasFloor():
		delete(next.Members, id)
	case quiet >= m.dur:
		next.Members[id] = other.dead()
	}
}

// slice returns what this member is to have of a pool.
func (m *machine) slice(at rotation.Time, r record, pool string, want int) slice {
	var living []int
	taken, kept, dead := 0, 0, 0
	for id, other := range r.Members {
		if id == m.id {
			continue
		}
		s, has := other.Pools[pool]
		taken, kept = taken+s.Share, kept+s.Floor
		switch {
		case other.Dead:
			dead += s.Share
		case has:
			living = append(living, s.Want)
		}
	}
	unknown := 0 // floors by a record before this one
	if !r.FloorsSettled {
		unknown = max(0, floors-kept-m.floor(at, pool))
	}
	out := slice{Want: rounded(want)}
	out.Share = max(0, min(fair(whole-dead-unknown, out.Want, living), whole-taken-unknown))
	if !r.Settled {
		out.Share = min(out.Share, m.share(at, pool))
	}
	out.Floor = max(0, min(out.Share, oneFloor, floors-kept))
	if !r.FloorsSettled {
		out.Floor = min(out.Floor, m.floor(at, pool))
	}
	return out
}

func rounded(want int) int { return min(whole, (max(want, 0)+grain-1)/grain*grain) }
