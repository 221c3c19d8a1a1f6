// Package recent has a [Map] that forgets what was used least recently, so that strangers cannot
// make it grow.
package recent

// Map keeps a bounded number of entries: when the young are half of what is allowed, the old are
// forgotten and the young grow old. So it keeps at least the half that was used last. It is not
// safe for concurrent use.
type Map[K comparable, V any] struct {
	most       int
	young, old map[K]V
}

// New returns a map of so many entries at most, 2 at least.
func New[K comparable, V any](most int) Map[K, V] {
	return Map[K, V]{most: most, young: map[K]V{}}
}

// Get returns the entry of a key. Its use makes it young.
func (m *Map[K, V]) Get(key K) (v V, ok bool) {
	if v, ok = m.young[key]; ok {
		return v, true
	}
	if v, ok = m.old[key]; ok {
		delete(m.old, key)
		m.Put(key, v)
	}
	return v, ok
}

// Put adds an entry or replaces it.
func (m *Map[K, V]) Put(key K, v V) {
	if _, ok := m.young[key]; !ok && len(m.young) >= m.most/2 {
		m.old, m.young = m.young, map[K]V{}
	}
	m.young[key] = v
}

// Delete removes an entry.
func (m *Map[K, V]) Delete(key K) {
	delete(m.young, key)
	delete(m.old, key)
}

// Len returns the number of entries; one that was replaced while it was old counts twice.
func (m *Map[K, V]) Len() int { return len(m.young) + len(m.old) }
