package ask

import "math/rand/v2"

// standing is what speaks for asking about a name soon.
type standing int

const (
	unanswered standing = iota // it was asked about lately, and there was no answer
	fresh                      // it was not asked for before
	repeated                   // it was, or twice while it waits
	standings
)

// question is a name to ask about.
type question struct {
	name     string
	key      hash
	domain   string
	standing standing
	askers   int

	done    chan struct{} // closed with the answer
	allowed bool
	err     error

	group *group // nil: in no queue
	at    int    // its place in the group
	place int    // its place in the queue's list
}

// queue has the questions that wait. Those that were repeated come first, as a client that means it
// comes again and random names do not, and those that had their turn in vain come last: clients that
// wait for them have them asked about again and again. Each fourth turn begins with the fresh ones, and
// each eighth with the last, so that no flood of one kind takes all turns. Within a kind, registered
// domains take turns, so that random names of one domain wait for each other only.
type queue struct {
	rings [standings]ring
	turns int
	all   []*question // in any order
}

func newQueue() (q queue) {
	for i := range q.rings {
		q.rings[i].byDomain = map[string]*group{}
	}
	return q
}

func (q *queue) len() int { return len(q.all) }

func (q *queue) ringOf(asked *question) *ring { return &q.rings[asked.standing] }

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

// repeat moves a waiting question that is fresh to the repeated ones.
func (q *queue) repeat(asked *question) {
	if asked.group == nil || asked.standing != fresh {
		return
	}
	q.ringOf(asked).remove(asked)
	asked.standing = repeated
	q.ringOf(asked).add(asked)
}

// next takes out the question whose turn it is; nil if none waits.
func (q *queue) next() *question {
	q.turns++
	order := [standings]standing{repeated, fresh, unanswered}
	switch q.turns % 8 {
	case 4, 0:
		order = [standings]standing{fresh, repeated, unanswered}
	case 2:
		order = [standings]standing{unanswered, repeated, fresh}
	}
	for _, of := range order {
		if asked := q.rings[of].next(); asked != nil {
			q.remove(asked)
			return asked
		}
	}
	return nil
}

// victim returns the question that gives way to a new one, or the new one itself: of a few at random,
// one of the lowest standing and of the domain that has the most. Unanswered ones are as good as fresh
// ones while they have less than the eighth of the places for which they have turns.
func (q *queue) victim(newcomer *question) *question {
	least := unanswered
	if q.rings[unanswered].count < len(q.all)/8 {
		least = fresh
	}
	worth := func(asked *question) standing { return max(asked.standing, least) }
	victim, most := newcomer, q.ringOf(newcomer).size(newcomer.domain)
	for range 8 {
		other := q.all[rand.IntN(len(q.all))]
		if size := len(other.group.questions); worth(other) < worth(victim) || worth(other) == worth(victim) && size > most {
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
	count    int // of all questions
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
	r.count++
}

func (r *ring) remove(q *question) {
	r.count--
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
