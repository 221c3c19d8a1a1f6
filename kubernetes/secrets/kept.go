package secrets

import "sync"

// kept has the last good product of each watched object, so that a malformed version takes
// nothing away. The streams hold the same resources: it costs no memory.
type kept struct {
	mu sync.Mutex
	of map[place]map[madeOf]good
}

type good struct {
	product
	uid string
	bad bool // the object is malformed now
}

func newKept() *kept { return &kept{of: map[place]map[madeOf]good{}} }

// keep remembers a good product, and returns the last good one for a malformed one.
func (k *kept) keep(key madeOf, uid string, p product) product {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, found := k.of[key.place][key]
	switch {
	case p.err == nil && k.of[key.place] == nil:
		k.of[key.place] = map[madeOf]good{key: {product: p, uid: uid}}
	case p.err == nil:
		k.of[key.place][key] = good{product: p, uid: uid}
	case found && last.uid == uid:
		last.bad = true
		k.of[key.place][key] = last
		p.resource, p.lifetime = last.resource, last.lifetime
	}
	return p
}

// release forgets an object that nobody watches, unless it is malformed: whoever comes back has
// what it had.
func (k *kept) release(p place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, last := range k.of[p] {
		if !last.bad {
			delete(k.of[p], key)
		}
	}
	if len(k.of[p]) == 0 {
		delete(k.of, p)
	}
}

// drop forgets objects that do not exist any more.
func (k *kept) drop(places ...place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range places {
		delete(k.of, p)
	}
}

func (k *kept) dropCluster(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.of {
		if p.cluster == id {
			delete(k.of, p)
		}
	}
}
