package secret

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/countersign-dev/countersign/internal/watchers"
)

// places holds the slots of all names that are configured or watched. A name keeps its
// slot, and so its watchers, across reloads. It is safe for concurrent use.
type places struct {
	mu     sync.Mutex
	byName map[string]*slot
}

// of returns the slot of a name that is, or is about to be, configured. It marks the slot,
// so that a watch that ends before [places.configured] is called does not remove it.
func (p *places) of(name string) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.get(name)
	s.configured = true
	return s
}

func (p *places) get(name string) *slot {
	if p.byName == nil {
		p.byName = make(map[string]*slot)
	}
	s := p.byName[name]
	if s == nil {
		s = &slot{name: name}
		p.byName[name] = s
	}
	return s
}

// watch adds a watcher. stop removes it, and its slot if the name is not configured.
func (p *places) watch(name string, notify func(name string)) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unwatch := p.get(name).watchers.Add(notify)
	return func() {
		unwatch()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tidy(name)
	}
}

// peek returns the item of a name, which may be nil, and whether the name is configured.
func (p *places) peek(name string) (item *Item, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.byName[name]; s != nil && s.configured {
		return s.item.Load(), true
	}
	return nil, false
}

// remove clears the slot of one name that is no longer configured.
func (p *places) remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.byName[name]; s != nil {
		s.configured = false
		s.item.Store(nil)
		p.tidy(name)
	}
}

// configured keeps the slots of names without a watcher and clears all others.
func (p *places) configured(names map[string]holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, s := range p.byName {
		s.configured = names[name] != nil
		if !s.configured {
			s.item.Store(nil)
			p.tidy(name)
		}
	}
}

// notifyName notifies the watchers of a name.
func (p *places) notifyName(name string) {
	p.mu.Lock()
	s := p.byName[name]
	p.mu.Unlock()
	if s != nil {
		s.notify()
	}
}

// tidy removes a slot that is neither configured nor watched; the caller holds p.mu.
func (p *places) tidy(name string) {
	if s := p.byName[name]; s != nil && !s.configured && !s.watched() {
		delete(p.byName, name)
	}
}

// notify notifies all watchers.
func (p *places) notify() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.byName))
	p.mu.Unlock()
	for _, s := range all {
		s.notify()
	}
}

// slot holds the item of one name and the watchers to notify when it changes.
type slot struct {
	name       string
	configured bool // guarded by places.mu

	item     atomic.Pointer[Item]
	watchers watchers.Set[func(name string)]
}

func (s *slot) watched() bool { return s.watchers.Len() > 0 }

// put stores the item and notifies the watchers.
func (s *slot) put(item *Item) {
	s.item.Store(item)
	s.notify()
}

// notify calls the watchers without holding a lock.
func (s *slot) notify() {
	for _, notify := range s.watchers.All() {
		notify(s.name)
	}
}
