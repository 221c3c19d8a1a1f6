package access

import "sync/atomic"

// watch is one registered watcher.
type watch struct {
	notify func()
	entry  *entry // nil while there is no room
	gone   atomic.Bool
}

// Watch calls notify after changes of Peek's result, and when an answer arrives that
// Peek lacked, until stop. notify must not block; a call already in progress may finish
// after stop returns.
func (a *Access) Watch(s Subject, notify func()) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, e := &watch{notify: notify}, a.entry(s)
	desk := a.desks[s.Cluster]
	if e == nil {
		desk.waiting[w] = s
	} else {
		a.join(e, w)
	}
	return func() { a.leave(desk, w) }
}

func (a *Access) join(e *entry, w *watch) {
	w.entry = e
	e.watches[w] = struct{}{}
	a.arm(e)
}

func (a *Access) leave(d *desk, w *watch) {
	w.gone.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(d.waiting, w)
	if w.entry == nil {
		return
	}
	delete(w.entry.watches, w)
	if len(w.entry.watches) == 0 {
		w.entry.disarm()
		a.admit(d)
	}
}

// admit lets watchers in for which there is room now. The review tells them.
func (a *Access) admit(d *desk) {
	for w, s := range d.waiting {
		e := a.entry(s)
		if e == nil {
			return
		}
		delete(d.waiting, w)
		a.join(e, w)
		e.waited = true
		a.ask(e)
	}
}

// notify tells the watchers. No lock is held: they may come back to ask.
func notify(watches map[*watch]struct{}) {
	for w := range watches {
		if !w.gone.Load() {
			w.notify()
		}
	}
}
