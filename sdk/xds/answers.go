package xds

import (
	"cmp"
	"slices"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"
)

// maxAnswers is how many different complete answers of a type are kept for other streams.
const maxAnswers = 4

// answer is all that some streams have of a type. Nobody changes what it says.
type answer struct {
	bodies  []*anypb.Any // in the order of their names
	version string
	has     map[*Resource]struct{}
	encoded encoded
}

// answers are the last complete answers of a type on an engine: many streams have the
// same, and to order and hash a thousand resources for each is most of what a push costs.
type answers struct {
	mu   sync.Mutex
	last []*answer // replaced, never changed
}

// of returns the answer that holds what was sent of entries.
func (a *answers) of(entries map[string]*entry) *answer {
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	for _, known := range last {
		if known.holds(entries) {
			return known
		}
	}
	made := answerOf(entries)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = append([]*answer{made}, a.last[:min(len(a.last), maxAnswers-1)]...)
	return made
}

// holds tells whether the answer is just what was sent of entries.
func (a *answer) holds(entries map[string]*entry) bool {
	n := 0
	for _, e := range entries {
		if e.sent == nil {
			continue
		}
		if _, ok := a.has[e.sent]; !ok {
			return false
		}
		n++
	}
	return n == len(a.has)
}

func answerOf(entries map[string]*entry) *answer {
	resources := make([]*Resource, 0, len(entries))
	has := make(map[*Resource]struct{}, len(entries))
	for _, e := range entries {
		if e.sent != nil {
			resources = append(resources, e.sent)
			has[e.sent] = struct{}{}
		}
	}
	slices.SortFunc(resources, func(a, b *Resource) int { return cmp.Compare(a.Name, b.Name) })
	return &answer{bodies: bodies(resources), version: VersionOf(resources), has: has}
}
