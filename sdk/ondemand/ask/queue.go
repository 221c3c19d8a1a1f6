package ask

import "math/rand/v2"

// question is a name to ask about.
type question struct {
	name     string
	key      hash
	domain   string
	repeated bool // it was asked for before, or twice while it waits
	askers   int

	done    chan struct{} // closed with the answer
	allowed bool
	err     error

	group *group // nil: in no queue
	at    int    // its place in the group
	place int    // its place in the queue's list
}

// queue has the questions that wait. Those that were repeated come first, as a client that means it
// comes again and random names do not, but for each fourth turn: so a flood of repeated names leaves
// some turns to the others. Within both, registered domains take turns, so that random names of one
// domain wait for each other only.
type queue struct {
	repeated, fresh ring
	turns           int
	all             []*question // in any order
}

func newQueue() queue {
	return queue{repeated: ring{byDomain: map[string]*group{}}, fresh: ring{byDomain: map[string]*group{}}}
}

func (q *queue) len() int { return len(q.all) }

func (q *queue) ringOf(asked *question) *ring {
	if asked.repeated {
		return &q.repeated
	}
	return &q.fresh
}

func (q *queue) add(asked *question) {
	asked.place = len(q.all)
	q.all = append(q.all, asked)
	q.ringOf(asked).add(asked)
}

// remove takes a question out and reports whether it was waiting.
func (q *queue) remove(asked *question) bool {
	if asked.group == nil {
		return false
	}
	end := len(q.all) - 1
	last := q.all[end]
	q.all[asked.place], last.place = last, asked.place
	q.all[end] = nil
	q.all = q.all[:end]
	q.ringOf(asked).remove(asked)
	return true
}

// repeat moves a waiting question to the repeated ones.
func (q *queue) repeat(asked *question) {
	if asked.group == nil || asked.repeated {
		return
	}
	q.fresh.remove(asked)
	asked.repeated = true
	q.repeated.add(asked)
}

// next takes out the question whose turn it is; nil if none waits.
func (q *queue) next() *question {
	q.turns++
	first, second := &q.repeated, &q.fresh
	if q.turns%4 == 0 {
		first, second = second, first
	}
	asked := first.next()
	if asked == nil {
		asked = second.next()
	}
	if asked != nil {
		q.remove(asked)
	}
	return asked
}

// victim returns the question that gives way to a new one, or the new one itself: of a few at random,
// a fresh one of the domain that has the most.
func (q *queue) victim(newcomer *question) *question {
	victim, most := newcomer, q.ringOf(newcomer).size(newcomer.domain)
	for range 8 {
		other := q.all[rand.IntN(len(q.all))]
		if size := len(other.group.questions); other.repeated == victim.repeated && size > most || victim.repeated && !other.repeated {
			victim, most = other, size
		}
	}
	return victim
}

// ring has domains with questions, which take turns.
type ring struct {
	byDomain map[string]*group
	order    []*group
	turn     int
}

// group has the questions of one domain.
type group struct {
	domain    string
	at        int // its place in the ring
	questions []*question
}

func (r *ring) size(domain string) int {
	if g := r.byDomain[domain]; g != nil {
		return len(g.questions)
	}
	return 0
}

func (r *ring) add(q *question) {
	g := r.byDomain[q.domain]
	if g == nil {
		g = &group{domain: q.domain, at: len(r.order)}
		r.byDomain[q.domain] = g
		r.order = append(r.order, g)
	}
	q.group, q.at = g, len(g.questions)
	g.questions = append(g.questions, q)
}

func (r *ring) remove(q *question) {
	g := q.group
	end := len(g.questions) - 1
	last := g.questions[end]
	g.questions[q.at], last.at = last, q.at
	g.questions[end] = nil
	g.questions, q.group = g.questions[:end], nil
	if end > 0 {
		return
	}
	delete(r.byDomain, g.domain)
	end = len(r.order) - 1
	tail := r.order[end]
	r.order[g.at], tail.at = tail, g.at
	r.order[end] = nil
	r.order = r.order[:end]
}

// next returns a question of the domain whose turn it is, at random: when more come than are asked,
// each has the same chance.
func (r *ring) next() *question {
	if len(r.order) == 0 {
		return nil
	}
	r.turn = (r.turn + 1) % len(r.order)
	questions := r.order[r.turn].questions
	return questions[rand.IntN(len(questions))]
}
