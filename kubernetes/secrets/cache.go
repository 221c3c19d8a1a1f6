package secrets

import (
	"container/list"
	"sync"
)

// madeOf is everything a resource depends on besides the object's content: resources
// that differ in any part never share an entry. The caller is not part of it because
// access is checked first.
type madeOf struct {
	place        // cluster, kind, namespace and name of the object
	name  string // full resource name, which is in the body
	ca    bool
}

func (o object) key(r request) madeOf { return madeOf{o.place, r.name, r.ca} }

// cache holds resources built from objects: each is built once for all concurrent
// callers, and the least recently used is evicted first. It is safe for concurrent use.
type cache struct {
	most int // bytes

	mu    sync.Mutex
	used  *list.List // of *slot, most recently used first
	bytes int
	slots map[place]map[madeOf]*list.Element
}

type slot struct {
	key   madeOf
	stamp string
	once  sync.Once
	product
	bytes int // guarded by the cache; 0 while being built
}

// slotBytes is the memory of a slot besides the body.
const slotBytes = 1 << 10

func newCache(most int) *cache {
	return &cache{most: most, used: list.New(), slots: map[place]map[madeOf]*list.Element{}}
}

// get returns the product of the object with that stamp, building it if needed.
func (c *cache) get(key madeOf, stamp string, build func() product) product {
	if stamp == "" {
		return build()
	}
	s := c.slot(key, stamp)
	s.once.Do(func() { s.product = build() })
	c.weigh(s)
	return s.product
}

func (c *cache) slot(key madeOf, stamp string) *slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element := c.slots[key.place][key]; element != nil {
		if s := element.Value.(*slot); s.stamp == stamp {
			c.used.MoveToFront(element)
			return s
		}
		c.remove(element)
	}
	s := &slot{key: key, stamp: stamp}
	if c.slots[key.place] == nil {
		c.slots[key.place] = map[madeOf]*list.Element{}
	}
	c.slots[key.place][key] = c.used.PushFront(s)
	return s
}

// weigh adds a product's size and makes room. A product dropped while it was built is
// not kept.
func (c *cache) weigh(s *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.slots[s.key.place][s.key]
	if element == nil || element.Value != s || s.bytes > 0 {
		return
	}
	s.bytes = slotBytes
	if s.resource != nil {
		s.bytes += len(s.resource.Body.GetValue())
	}
	c.bytes += s.bytes
	for c.bytes > c.most && c.used.Len() > 0 {
		c.remove(c.used.Back())
	}
}

func (c *cache) remove(element *list.Element) {
	s := c.used.Remove(element).(*slot)
	c.bytes -= s.bytes
	delete(c.slots[s.key.place], s.key)
	if len(c.slots[s.key.place]) == 0 {
		delete(c.slots, s.key.place)
	}
}

// drop removes the products of an object.
func (c *cache) drop(p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, element := range c.slots[p] {
		c.remove(element)
	}
}

// dropCluster removes the products of a cluster's objects.
func (c *cache) dropCluster(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, elements := range c.slots {
		if p.cluster != id {
			continue
		}
		for _, element := range elements {
			c.remove(element)
		}
	}
}

// size returns how much is cached.
func (c *cache) size() (slots, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used.Len(), c.bytes
}
