package process

import (
	"maps"
	"slices"
	"sync"
)

// Groups are the process groups and users of providers. All providers of an agent share
// one value (Options.Groups), and the policy of its sockets asks it, so that no provider
// is served a secret. The zero value is empty and ready; it is safe for concurrent use.
//
// A separate user keeps any provider out. The process group keeps out a faulty provider
// but not a malicious one, which can leave its group.
type Groups struct {
	mu    sync.RWMutex
	ids   map[int]bool
	users map[uint32]bool
}

// ContainsUser reports whether a provider has run or runs as the user.
func (g *Groups) ContainsUser(uid uint32) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.users[uid]
}

// AddUser adds a user before a provider runs as it. It stays: a process may be left behind.
func (g *Groups) AddUser(uid uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users == nil {
		g.users = map[uint32]bool{}
	}
	g.users[uid] = true
}

// Contains reports whether a provider runs in the group. It waits for a start in progress,
// about a millisecond: otherwise a provider could connect before its group is listed.
func (g *Groups) Contains(id int) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.ids[id]
}

// All returns the ids in use, ascending.
func (g *Groups) All() []int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Sorted(maps.Keys(g.ids))
}

// starting runs start, which returns the new group's id.
func (g *Groups) starting(start func() (int, error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, err := start()
	if err != nil {
		return err
	}
	if g.ids == nil {
		g.ids = map[int]bool{}
	}
	g.ids[id] = true
	return nil
}

func (g *Groups) ended(id int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ids, id)
}
