package ra

import "github.com/countersign-dev/countersign/internal/recent"

// recentOf remembers what was used last, a bounded number of entries.
type recentOf[K comparable, V any] struct {
	make func() V
	all  recent.Map[K, V]
}

func newRecent[K comparable, V any](most int, make func() V) recentOf[K, V] {
	return recentOf[K, V]{make, recent.New[K, V](most)}
}

// get returns the entry of a key, a new one if it is not known.
func (r *recentOf[K, V]) get(key K) V {
	v, known := r.all.Get(key)
	if !known {
		v = r.make()
		r.all.Put(key, v)
	}
	return v
}
