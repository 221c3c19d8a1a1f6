package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// node is an entry with a name.
type node struct {
	Entry
	name string
}

func TestQueueIsInOrderWhateverMoves(t *testing.T) {
	q := Queue[*node]{by: byRank}
	begin := time.Unix(0, 0)
	var all []*node
	for i := range 500 {
		n := &node{name: fmt.Sprint(i)}
		all = append(all, n)
		q.put(n, begin.Add(rand.N(time.Hour)))
	}
	for range 2000 {
		n := all[rand.N(len(all))]
		if rand.N(3) == 0 {
			q.remove(n)
		} else {
			q.put(n, begin.Add(rand.N(time.Hour)))
		}
	}
	var got []time.Time
	for n, ok := q.first(); ok; n, ok = q.first() {
		got = append(got, n.rank)
		q.remove(n)
		q.remove(n)
		if n.rankAt != 0 {
			t.Fatal("a removed entry has a place")
		}
	}
	if len(got) < 200 || !slices.IsSortedFunc(got, time.Time.Compare) {
		t.Errorf("%d entries, or not in order", len(got))
	}
}

func TestRemoveLeavesEntryOfAnotherQueue(t *testing.T) {
	var queues [2]Queue[*node]
	a, b := &node{name: "a"}, &node{name: "b"}
	for i, n := range []*node{a, b} {
		queues[i].by = byRank
		queues[i].put(n, time.Unix(1, 0))
	}
	queues[0].remove(b)
	if queues[0].Len() != 1 || queues[1].Len() != 1 || b.rankAt != 1 {
		t.Error("the place of an entry is taken for one in another queue")
	}
}

// picks returns how many of n starts go to each queue while all three are full.
func picks(n int, ranks [queues]time.Time) (got [queues]int) {
	p := &Pool[*node]{}
	for i := range p.queues {
		p.queues[i].by = byRank
		p.queues[i].put(&node{}, ranks[i])
	}
	for range n {
		for i, q := 0, p.pickQueue(); i < queues; i++ {
			if q == &p.queues[i] {
				got[i]++
			}
		}
	}
	return got
}

func TestEachQueueGetsItsTurn(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, test := range map[string]struct{ ranks [queues]time.Time }{
		"new names came first":          {ranks: [queues]time.Time{Renewals: now.Add(time.Hour), First: now, Idle: now}},
		"certificates are about to end": {ranks: [queues]time.Time{Renewals: now.Add(-time.Hour), First: now, Idle: now}},
	} {
		got := picks(160, test.ranks)
		if got[Renewals] < 30 || got[Idle] != 10 {
			t.Errorf("%s: %v", name, got)
		}
		if name == "new names came first" && got[First] < 100 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPickTakesTheQueueThatHasEntries(t *testing.T) {
	for i := range queues {
		p := &Pool[*node]{}
		for j := range p.queues {
			p.queues[j].by = byRank
		}
		n := &node{}
		p.queues[i].put(n, time.Unix(1, 0))
		for range 20 {
			if got, ok := p.pickQueue().first(); !ok || got != n {
				t.Fatalf("queue %d is not picked", i)
			}
		}
	}
}
