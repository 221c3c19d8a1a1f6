package xds

import "errors"

// release stops what a request unsubscribes from. The machine has dropped it already, so this
// happens whether or not the request was an error.
func (r *runner[C, Q, R]) release(st *step) {
	if st.unwild != nil && st.unwild.stop != nil {
		st.unwild.stop()
	}
	r.unwatch(st.typ, st.dropped)
}

// watchList starts watching the list a request subscribes to.
func (r *runner[C, Q, R]) watchList(st *step) {
	if st.wild == nil {
		return
	}
	typ := st.typ
	notify := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.machine.relist(typ)
		r.kick()
	}
	if stop, err := r.lister(typ).WatchList(r.caller, notify); err == nil {
		st.wild.stop = stop
	}
}

// lister returns the type's source if it supports the wildcard.
func (r *runner[C, Q, R]) lister(typ int) Lister[C] {
	return r.engine.cfg.Types[typ].Source.(Lister[C])
}

func (r *runner[C, Q, R]) unwatch(typ int, dropped []*entry) {
	for _, e := range dropped {
		if e.stop != nil {
			e.stop()
			continue
		}
		r.mu.Lock()
		delete(r.unwatched, typed{typ, e.name})
		r.mu.Unlock()
	}
}

// typed is the name of a resource of a type.
type typed struct {
	typ  int
	name string
}

func (r *runner[C, Q, R]) watch(typ int, added []*entry) {
	for _, e := range added {
		if err := r.watchOne(typ, e); err != nil {
			r.refuseWatch(typed{typ, e.name}, e)
		}
	}
}

func (r *runner[C, Q, R]) watchOne(typ int, e *entry) error {
	stop, err := r.engine.cfg.Types[typ].Source.Watch(r.caller, e.name, r.notifier(typ))
	if err == nil && !r.keep(e, stop) {
		stop()
	}
	return err
}

// refuseWatch records that the source refused to watch a name.
func (r *runner[C, Q, R]) refuseWatch(name typed, e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.dropped {
		return
	}
	if r.unwatched == nil {
		r.unwatched = map[typed]*entry{}
	}
	r.unwatched[name] = e
}

// peek looks a name up. If the source refused to watch it and has it by now, for another stream, it is
// watched first: a resource without a watch would never change.
func (r *runner[C, Q, R]) peek(typ int, name string) (*Resource, error) {
	source := r.engine.cfg.Types[typ].Source
	resource, err := source.Peek(r.caller, name)
	r.mu.Lock()
	e := r.unwatched[typed{typ, name}]
	delete(r.unwatched, typed{typ, name})
	r.mu.Unlock()
	if e == nil || errors.Is(err, ErrUnknown) {
		return resource, err
	}
	switch again := r.watchOne(typ, e); {
	case errors.Is(again, ErrUnknown):
		return nil, again
	case again != nil:
		return resource, err
	}
	return source.Peek(r.caller, name)
}

// keep stores the stop function of a watch. It returns false if the stream's other
// goroutine has dropped the name meanwhile.
func (r *runner[C, Q, R]) keep(e *entry, stop func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !e.dropped {
		e.stop = stop
	}
	return !e.dropped
}

// notifier returns the notify function for sources of a type.
func (r *runner[C, Q, R]) notifier(typ int) func(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notify == nil {
		r.notify = make([]func(string), len(r.engine.cfg.Types))
	}
	if r.notify[typ] == nil {
		r.notify[typ] = func(name string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.machine.changed(typ, name)
			r.kick()
		}
	}
	return r.notify[typ]
}

// list fetches the list of a type, then watches and looks up new names.
func (r *runner[C, Q, R]) list(t task) error {
	names, err := r.lister(t.typ).List(r.caller)
	if end, ok := errors.AsType[*EndError](err); ok {
		return end.Status
	}
	if err != nil && !(errors.Is(err, ErrNotReady) && len(names) > 0) {
		return nil // not ready: a notification will follow
	}
	r.mu.Lock()
	added, dropped := r.machine.listed(t.typ, names, err == nil)
	r.mu.Unlock()
	r.reportCleared(t.typ)
	r.unwatch(t.typ, dropped)
	r.watch(t.typ, added)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range added {
		r.machine.changed(t.typ, e.name)
	}
	return nil
}

// look queries the source without holding the lock.
func (r *runner[C, Q, R]) look(typ int, names []string) []lookup {
	refusedHashes := r.refusedHashes()
	found := make([]lookup, len(names))
	for i, name := range names {
		resource, err := r.peek(typ, name)
		found[i] = lookup{name: name, resource: resource, err: err}
		if resource != nil && len(refusedHashes) > 0 {
			_, found[i].refusedBefore = refusedHashes[hashOf(typ, resource)]
		}
	}
	return found
}

// ending returns the status that ends the stream, if the source returned one.
func ending(found []lookup) error {
	for _, f := range found {
		if end, ok := errors.AsType[*EndError](f.err); ok {
			return end.Status
		}
	}
	return nil
}
