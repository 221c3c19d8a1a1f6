package secret

import (
	"sync"

	"github.com/countersign-dev/countersign/internal/clock"
)

// Map is a [Source] whose items the program sets, such as those that it reads from a database.
// [NewKeyPair] and [NewTrustBundle] make items. Every caller may have every name: put a Source in
// front that refuses the others if callers differ. The zero value is empty and ready; it is safe
// for concurrent use and must not be copied.
//
// An item that has expired is no longer returned by Peek. The expiry notifies no watcher: those
// that hold the certificate may keep it.
type Map struct {
	mu     sync.Mutex // serializes changes
	places places
}

var _ Source = (*Map)(nil)

// Set has name answered with item from now on and notifies the watchers, unless item has the
// Version of the one before. A nil item means that the name is known but not ready. The item
// must not be changed afterwards; [Item.Name] becomes name.
func (m *Map) Set(name string, item *Item) {
	if item != nil && item.Name != name {
		renamed := *item
		renamed.Name, item = name, &renamed
	}
	if m.change(name, item) {
		m.places.notifyName(name)
	}
}

// Delete makes a name unknown and notifies its watchers.
func (m *Map) Delete(name string) {
	if m.remove(name) {
		m.places.notifyName(name)
	}
}

// Peek implements [Source].
func (m *Map) Peek(_ Caller, name string) (*Item, error) {
	item, known := m.places.peek(name)
	switch {
	case !known:
		return nil, Unknown(name)
	case item == nil, item.Expired(clock.Wall()):
		return nil, NotReady(name, nil)
	}
	return item, nil
}

// Watch implements [Source]; an unknown name may be watched.
func (m *Map) Watch(_ Caller, name string, notify func(name string)) (stop func(), err error) {
	return m.places.watch(name, notify), nil
}

// change reports whether Peek answers otherwise now.
func (m *Map) change(name string, item *Item) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.places.peek(name)
	before := m.places.of(name).item.Swap(item)
	switch {
	case !known:
		return true
	case before == nil || item == nil:
		return before != item
	}
	return before.Version != item.Version
}

// remove reports whether the name was known.
func (m *Map) remove(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.places.peek(name)
	if known {
		m.places.remove(name)
	}
	return known
}
