package secret

import (
	"crypto/x509"
	"slices"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Reload takes over another list of secrets and authorities, whole or, with an error,
// not at all. What is served goes on being served:
//
//   - A secret of the same name keeps what is held for it. Where its identity or kind
//     of key is another, or its signer is gone, a successor is asked for at once and
//     replaces it when it is verified.
//   - An authority of the same name keeps its roots, those that other pins still allow.
//   - A new name becomes known to who watches it already; one that is gone becomes
//     unknown, and what was held for it is let go of.
//
// Requests on their way are made again, what had failed is tried at once, and tokens
// are read again, as they may come from elsewhere now; no certificate is asked for on
// that account. It returns when the new list is in force, a second later where a
// client ignores its context; what it has to obtain comes afterwards. Errors are those of
// [New], and [ErrClosed]. Calls at the same time wait for one another.
func (m *Manager) Reload(secrets []Spec, authorities []Authority) error {
	m.reload.Lock()
	defer m.reload.Unlock()
	if m.ctx.Err() != nil {
		return ErrClosed
	}
	old := m.current.Load()
	next, err := m.newGeneration(secrets, authorities)
	if err != nil {
		m.places.configured(old.secrets) // it may have made some for names that are not to be
		return err
	}
	old.end() // what is in its hands is in nobody else's now
	next.adopt(old)
	m.current.Store(next)
	m.places.configured(next.secrets)
	m.forgetOthers(old, next)
	next.start()
	for name := range changedNames(old, next) {
		m.places.tell(name)
	}
	return nil
}

// forgetOthers has the records removed of what is no longer configured.
func (m *Manager) forgetOthers(old, next *generation) {
	for _, a := range old.authorities {
		if next.authority(a.Name) == nil {
			m.keeper.forget(rootsRecord(a.Name))
		}
	}
	for name, h := range old.secrets {
		_, was := h.(*leaf)
		if _, is := next.secrets[name].(*leaf); was && !is {
			m.keeper.forget(secretRecord(name))
		}
	}
}

// changedNames returns those that are in one of both only.
func changedNames(old, next *generation) map[string]bool {
	names := make(map[string]bool)
	for name := range old.secrets {
		names[name] = next.secrets[name] == nil
	}
	for name := range next.secrets {
		names[name] = old.secrets[name] == nil
	}
	for name, changed := range names {
		if !changed {
			delete(names, name)
		}
	}
	return names
}

// adopt takes over what an ended generation held.
func (g *generation) adopt(old *generation) {
	for _, a := range g.authorities {
		if was := old.authority(a.Name); was != nil {
			a.adopt(was)
		}
	}
	for name, h := range g.secrets {
		switch was := old.secrets[name].(type) {
		case nil:
		case *leaf:
			if l, ok := h.(*leaf); ok {
				l.adopt(was, g)
			} else {
				h.place().item.Store(nil)
			}
		case *trustBundle:
			if b, ok := h.(*trustBundle); ok {
				b.adopt(was)
			} else {
				h.place().item.Store(nil)
			}
		}
	}
	// Only now does each bundle know the roots of all of its authorities.
	for _, a := range g.authorities {
		a.publish()
	}
}

// adopt takes over the roots.
func (a *authority) adopt(was *authority) {
	a.roots = was.roots
	a.served.Store(was.served.Load())
	a.failure.Store(was.failure.Load())
	a.lentUntil.Store(was.lentUntil.Load())
	a.recorded = was.recorded
	served := was.bundle.Load()
	if a.PinnedRoots != nil {
		a.roots.filter(a.PinnedRoots.Contains)
		served = served.Filter(a.PinnedRoots.Contains)
	}
	if served.Len() > 0 {
		a.bundle.Store(served)
	}
}

// filter leaves out the roots that may not be served any more.
func (s *rootSet) filter(keep func(*x509.Certificate) bool) {
	s.told, s.replied = s.told.Filter(keep), s.replied.Filter(keep)
	for print, d := range s.dropped {
		if !keep(d.cert) {
			delete(s.dropped, print)
		}
	}
}

// adopt takes over the secret of this name.
func (l *leaf) adopt(was *leaf, g *generation) {
	l.held, l.count, l.mourned, l.released, l.restored = was.held, was.count, was.mourned, was.released, was.restored
	if was.by != nil {
		l.by = l.signedBy(g.authority(was.by.Name))
	}
	same := l.spec.KeyType == was.spec.KeyType && l.spec.Identity.Equal(was.spec.Identity)
	if same {
		l.order = was.unfinished(l.choices[0].Name)
	}
	if l.held == nil {
		return
	}
	redrawn := false
	switch {
	case !same || l.by == nil || !slices.Contains(l.spec.Authorities, l.by.Name):
		l.renew = l.now() // what is held is served until then
		l.log.Info("settings changed, replacing the held certificate", "fingerprint", pki.Fingerprint(l.held.Leaf))
	case l.spec.RenewRatio != was.spec.RenewRatio || l.spec.RenewJitter != was.spec.RenewJitter:
		l.renew, redrawn = drawRenewal(l.spec, l.held, l.item.Load().Issued), true
	default:
		l.renew = was.renew
	}
	l.credential = was.credential.reloaded(was.choices[0], l.choices[0])
	if l.by != nil {
		l.by.ends[l] = l.held.Leaf.NotAfter
	}
	item := *l.item.Load()
	item.RenewAt = l.renew
	l.item.Store(&item) // the content is the same: nobody is told
	if redrawn {
		l.keep(&item)
	}
}

// signedBy returns the choice that an authority is, or one that is not asked any
// more; nil where there is no such authority.
func (l *leaf) signedBy(a *authority) *choice {
	for _, c := range l.choices {
		if c.authority == a {
			return c
		}
	}
	if a == nil {
		return nil
	}
	return &choice{authority: a}
}

// unfinished returns the order that was not filled, if it was for that authority:
// asked again, it is the same to it.
func (l *leaf) unfinished(authority string) *order {
	switch {
	case l.choice().Name != authority:
		return nil
	case l.flight != nil:
		return l.flight.order
	}
	return l.order
}

// adopt takes over the bundle of this name.
func (b *trustBundle) adopt(was *trustBundle) {
	b.expired = was.expired
	b.changes.Store(was.changes.Load())
}
