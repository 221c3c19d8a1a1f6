package xds

import (
	"slices"
	"testing"
	"testing/synctest"
)

// catalog is a memorySource that lists; a nil list is not ready.
type catalog struct {
	*memorySource
	names     []string
	listeners map[*func()]struct{}
	asked     int
	more      bool // the list is not whole
}

func newCatalog() *catalog {
	return &catalog{memorySource: newMemorySource(), listeners: map[*func()]struct{}{}}
}

func (c *catalog) List(caller string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.names == nil {
		return nil, ErrNotReady
	}
	var names []string
	for _, name := range c.names {
		if !c.forbid(caller, name) {
			names = append(names, name)
		}
	}
	if c.more {
		return names, ErrNotReady
	}
	return names, nil
}

func (c *catalog) WatchList(_ string, notify func()) (func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := &notify
	c.listeners[key] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, key)
	}, nil
}

// list sets the list and tells.
func (c *catalog) list(names ...string) {
	c.mu.Lock()
	c.names, c.more = append([]string{}, names...), false
	c.mu.Unlock()
	c.tellList()
}

// partial sets a list that may have more.
func (c *catalog) partial(names ...string) {
	c.mu.Lock()
	c.names, c.more = append([]string{}, names...), true
	c.mu.Unlock()
	c.tellList()
}

// unlist has no list any more, or yet.
func (c *catalog) unlist() {
	c.mu.Lock()
	c.names = nil
	c.mu.Unlock()
	c.tellList()
}

func (c *catalog) tellList() {
	c.mu.Lock()
	var notify []func()
	for f := range c.listeners {
		notify = append(notify, *f)
	}
	c.mu.Unlock()
	for _, f := range notify {
		f()
	}
}

// have has version 1 of these and lists them.
func (c *catalog) have(names ...string) {
	c.memorySource.have(names...)
	c.list(names...)
}

// delete takes a resource and its listing away.
func (c *catalog) delete(name string) {
	c.mu.Lock()
	c.names = slices.DeleteFunc(slices.Clone(c.names), func(n string) bool { return n == name })
	delete(c.known, name)
	c.mu.Unlock()
	c.tellList()
	c.notify(name)
}

// withCatalog runs a story on an engine of one type that knows the wildcard; nothing
// may be watched when it ends.
func withCatalog(t *testing.T, complete bool, story func(t *testing.T, b *bench, c *catalog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCatalog()
		b := newBench(t, Config[string]{Types: []Type[string]{{URL: thingURL, Source: c, Complete: complete}}}, c.memorySource)
		story(t, b, c)
		b.engine.Close(nil)
		if left := c.watched(); len(left)+len(c.listeners) > 0 {
			t.Errorf("watches left after Close: %v and %d lists", left, len(c.listeners))
		}
	})
}
