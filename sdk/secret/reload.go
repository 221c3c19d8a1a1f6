package secret

import (
	"crypto/x509"
	"slices"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Reload replaces the secrets and authorities. On error it changes nothing. The Manager
// keeps serving throughout:
//
//   - A secret of the same name keeps its item. If its identity or key type changed, or its
//     signer is gone, the Manager requests a successor at once and serves it when verified.
//   - An authority of the same name keeps its roots, except those that new pins exclude.
//   - A new name becomes known to its watchers. A removed name becomes unknown, and the
//     Manager drops its item.
//
// Reload repeats requests in flight, retries failed attempts at once and reads tokens
// again, as they may come from another source; that alone requests no certificate. It
// returns once the new list is in force, up to a second later if a client ignores its
// context; the new secrets follow. Errors are those of [New], and [ErrClosed]. Concurrent
// calls run one after another.
func (m *Manager) Reload(secrets []Spec, authorities []Authority) error {
	m.reload.Lock()
	defer m.reload.Unlock()
	if m.ctx.Err() != nil {
		return ErrClosed
	}
	old := m.current.Load()
	next, err := m.newGeneration(secrets, authorities)
	if err != nil {
		m.places.configured(old.secrets) // it may have made places for names that are now rejected
		return err
	}
	old.end() // from here on only this goroutine touches its state
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

// forgetOthers removes the records of what is no longer configured.
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

// changedNames returns the names that are in only one of the two.
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

// adopt takes over the state of a generation that has ended.
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
	// Publish only now, when each bundle knows the roots of all its authorities.
	for _, a := range g.authorities {
		a.publish()
	}
}

// adopt takes over the roots of was.
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

// filter removes the roots that keep rejects.
func (s *rootSet) filter(keep func(*x509.Certificate) bool) {
	s.told, s.replied = s.told.Filter(keep), s.replied.Filter(keep)
	for print, d := range s.dropped {
		if !keep(d.cert) {
			delete(s.dropped, print)
		}
	}
}

// adopt takes over the state of was, a secret of the same name.
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
		l.renew = l.now() // the held certificate is served until then
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
	l.item.Store(&item) // same content, so no notification
	if redrawn {
		l.keep(&item)
	}
}

// signedBy returns a's choice. For an authority that no longer signs this secret it
// returns a new choice, for nil it returns nil.
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

// unfinished returns the unfilled order if it was for that authority: to the authority,
// sending it again is a retry.
func (l *leaf) unfinished(authority string) *order {
	switch {
	case l.choice().Name != authority:
		return nil
	case l.flight != nil:
		return l.flight.order
	}
	return l.order
}

// adopt takes over the state of was, a bundle of the same name.
func (b *trustBundle) adopt(was *trustBundle) {
	b.expired = was.expired
	b.changes.Store(was.changes.Load())
}
