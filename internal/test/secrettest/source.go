// Package secrettest is a source of secrets for tests: [New] fills a [Source] with items,
// [Source.Put] replaces some and notifies the watchers.
package secrettest

import (
	"maps"
	"sync"

	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Source is a [secret.Source] of fixed items. It is safe for concurrent use.
type Source struct {
	mu       sync.Mutex
	items    map[string]*secret.Item // nil: not ready
	err      error
	watchers watchers.Set[func()]
}

// New returns a source with these items.
func New(items ...*secret.Item) *Source {
	d := &Source{items: map[string]*secret.Item{}}
	d.Put(items...)
	return d
}

// Peek implements [secret.Source].
func (d *Source) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	item, known := d.items[name]
	switch {
	case d.err != nil:
		return nil, d.err
	case !known:
		return nil, secret.ErrUnknown
	case item == nil:
		return nil, secret.ErrNotReady
	}
	return item, nil
}

// Watch implements [secret.Source]: each change notifies all watchers.
func (d *Source) Watch(_ secret.Caller, name string, notify func(string)) (func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	return d.watchers.Add(func() { notify(name) }), nil
}

// Put replaces items together.
func (d *Source) Put(items ...*secret.Item) {
	d.change(func() {
		for _, item := range items {
			d.items[item.Name] = item
		}
	})
}

// Empty keeps these names, and nothing that is ready for them.
func (d *Source) Empty(names ...string) {
	d.change(func() {
		for _, name := range names {
			d.items[name] = nil
		}
	})
}

// Forget has these names unknown.
func (d *Source) Forget(names ...string) {
	d.change(func() {
		for _, name := range names {
			delete(d.items, name)
		}
	})
}

// Fail answers everything with an error from now on.
func (d *Source) Fail(err error) { d.change(func() { d.err = err }) }

// Notify notifies all watchers without a change.
func (d *Source) Notify() { d.change(func() {}) }

// Items is what it holds now, by name; nil is not ready.
func (d *Source) Items() map[string]*secret.Item {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.items)
}

// Watchers is how many watch.
func (d *Source) Watchers() int { return d.watchers.Len() }

// change notifies all watchers, with no lock held.
func (d *Source) change(f func()) {
	d.mu.Lock()
	f()
	d.mu.Unlock()
	for _, notify := range d.watchers.All() {
		notify()
	}
}
