package secret

import (
	"sync"
	"time"
)

// Due reports whether an authority is to sign a key pair now, and when the first of the
// certificates that it is to replace ends; zero if none of them is held. The cost does not
// grow with the number of secrets: a provider's supervisor calls it for each request.
func (m *Manager) Due(authority string) (ends time.Time, due bool) {
	return m.urgent.first(authority, m.config.Now())
}

// urgency records which leaves are due. The zero value has none.
type urgency struct {
	mu          sync.Mutex
	authorities map[string]*dueLeaves
}

// dueLeaves are the leaves that one authority may sign and that are due.
type dueLeaves struct {
	bare map[*leaf]struct{} // nothing valid is held
	held deadlines          // by the end of what is held
}

// dueness says that a leaf is due, and when what it holds ends; zero if it holds nothing.
type dueness struct {
	due  bool
	ends time.Time
}

// set records a leaf with the authorities that may sign it.
func (u *urgency) set(l *leaf, authorities []string, now dueness) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range authorities {
		u.of(name).set(l, now)
	}
}

// of returns the leaves of an authority; the caller holds u.mu.
func (u *urgency) of(authority string) *dueLeaves {
	all := u.authorities[authority]
	if all == nil {
		all = &dueLeaves{bare: make(map[*leaf]struct{})}
		if u.authorities == nil {
			u.authorities = make(map[string]*dueLeaves)
		}
		u.authorities[authority] = all
	}
	return all
}

func (d *dueLeaves) set(l *leaf, now dueness) {
	delete(d.bare, l)
	switch {
	case now.due && !now.ends.IsZero():
		d.held.set(l, now.ends)
		return
	case now.due:
		d.bare[l] = struct{}{}
	}
	d.held.drop(l)
}

// first is [Manager.Due].
func (u *urgency) first(authority string, now time.Time) (ends time.Time, due bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.of(authority)
	for {
		l, at, some := all.held.first()
		if !some || !now.After(at) {
			return at, some || len(all.bare) > 0
		}
		all.held.drop(l) // it has expired
		all.bare[l] = struct{}{}
	}
}

// recordDue records whether the leaf is due, if that has changed.
func (l *leaf) recordDue(now time.Time) {
	is := dueness{due: l.rotation.Asking() || l.failure != nil}
	switch item := l.item.Load(); {
	case item == nil || item.Expired(now):
		is.due = is.due || l.rotation.Wanted()
	default:
		is.due = is.due || !item.RenewAt.IsZero() && now.After(item.RenewAt)
		is.ends = item.NotAfter
	}
	if is != l.dueAs {
		l.urgent.set(l, l.spec.Authorities, is)
		l.dueAs = is
	}
}

// notDue removes the leaf from what is due: it ends, or other authorities are to sign it.
func (l *leaf) notDue() {
	l.urgent.set(l, l.spec.Authorities, dueness{})
	l.dueAs = dueness{}
}
