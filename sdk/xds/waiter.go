package xds

import (
	"errors"
	"maps"
	"slices"
)

// waiter looks up the names of a fetch until all are ready.
type waiter[C any] struct {
	caller  C
	source  Source[C]
	m       *sotw
	typ     int
	changed chan struct{} // capacity one: many changes cause one lookup
	stops   []func()
}

func (w *waiter[C]) stop() {
	for _, stop := range w.stops {
		stop()
	}
}

func (w *waiter[C]) notify() {
	select {
	case w.changed <- struct{}{}:
	default: // a notification is already pending
	}
}

func (w *waiter[C]) watch(added []*entry) {
	for _, e := range added {
		if stop, err := w.source.Watch(w.caller, e.name, func(string) { w.notify() }); err == nil {
			w.stops = append(w.stops, stop)
		}
	}
}

func (w *waiter[C]) watchList() {
	if stop, err := w.source.(Lister[C]).WatchList(w.caller, w.notify); err == nil {
		w.stops = append(w.stops, stop)
	}
}

// look returns the source's answer for each name and whether all are ready.
func (w *waiter[C]) look() (found []lookup, ready bool) {
	t := &w.m.types[w.typ]
	if t.wild != nil {
		names, err := w.source.(Lister[C]).List(w.caller)
		if err != nil {
			return []lookup{{err: err}}, false
		}
		added, _ := w.m.listed(w.typ, names, true)
		w.watch(added)
	}
	ready = true
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		resource, err := w.source.Peek(w.caller, name)
		found = append(found, lookup{name: name, resource: resource, err: err})
		ready = ready && (err == nil || errors.Is(err, ErrUnknown))
	}
	return found, ready
}
