package process

import (
	"maps"
	"slices"
	"sync"
)

// Groups are the ids of the process groups that providers run in, and of the
// users that they run as. One value is shared by all providers of an agent
// (Options.Groups) and asked by its sockets' policy, so that no provider is served a
// secret. The zero value is empty and ready; it is safe for concurrent use.
//
// A user of its own keeps any provider out. Its group keeps out one that has gone
// astray, not a malicious one: a process can leave its group.
type Groups struct {
	mu    sync.RWMutex
	ids   map[int]bool
	users map[uint32]bool
}

// ContainsUser tells whether a provider has run, runs or will run as the user.
func (g *Groups) ContainsUser(uid uint32) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.users[uid]
}

// AddUser notes a user that a provider will run as.
func (g *Groups) AddUser(uid uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users == nil {
		g.users = map[uint32]bool{}
	}
	g.users[uid] = true
}

// Contains tells whether a provider runs in the group. While one is being started
// it waits until that one's group is known, a millisecond or so: otherwise a
// provider could connect before it is listed.
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
