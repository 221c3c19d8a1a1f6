package ra

// recent remembers what was used last, a bounded number of entries. When the young are
// half of what is allowed, the old are forgotten and the young grow old.
type recent[K comparable, V any] struct {
	most       int
	make       func() V
	young, old map[K]V
}

func newRecent[K comparable, V any](most int, make func() V) recent[K, V] {
	return recent[K, V]{most: most, make: make, young: map[K]V{}}
}

// get returns the entry of a key, a new one if it is not known.
func (r *recent[K, V]) get(key K) V {
	if v, known := r.young[key]; known {
		return v
	}
	v, known := r.old[key]
	if !known {
		v = r.make()
	}
	if len(r.young) >= r.most/2 {
		r.old, r.young = r.young, map[K]V{}
	}
	r.young[key] = v
	return v
}
