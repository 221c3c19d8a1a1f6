package xds

import (
	"cmp"
	"slices"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"
)

// maxAnswers is how many distinct complete answers per type are cached for other streams.
const maxAnswers = 4

// answer is the complete state of a type as some streams have it. It is immutable.
type answer struct {
	bodies  []*anypb.Any // sorted by name
	version string
	has     map[*Resource]struct{}
	encoded encoded
}

// answers caches an engine's latest complete answers of one type. Many streams share the same
// answer, and sorting and hashing a thousand resources per stream dominates the cost of a push.
type answers struct {
	mu   sync.Mutex
	last []*answer // replaced, never modified
}

// of returns the cached or new answer that contains what was sent for entries.
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

// holds reports whether the answer matches exactly what was sent for entries.
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
