package secret

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Reload replaces the secrets and authorities. On error it changes nothing. The Manager
// keeps serving throughout:
//
//   - A secret of the same name keeps its item, and a certificate that is not valid yet. If
//     its identity or key type changed, or its signer is gone, the Manager requests a
//     successor at once and serves it when verified.
//   - An authority of the same name keeps its roots, except those that new pins exclude:
//     they are withheld at once, and a certificate under one is replaced within a minute. Pins
//     that would leave a trust bundle without any root are an error.
//   - The roots of an authority that is gone, or has another name now, stay in its bundles
//     as if it had dropped them; see [Authority].RootOverlap.
//   - A new name becomes known to its watchers. A removed name becomes unknown, and the
//     Manager drops its item.
//
// Reload repeats requests in flight, retries failed attempts at once and reads tokens
// again, as they may come from another source; that alone requests no certificate. It
// returns once the new list is in force; the new secrets follow. Errors are those of
// [New], and [ErrClosed]. Concurrent calls run one after another.
func (m *Manager) Reload(secrets []Spec, authorities []Authority) error {
	return m.planned(secrets, authorities, (*builder).apply)
}

// Check returns the error of a [Manager.Reload] now, and changes nothing.
func (m *Manager) Check(secrets []Spec, authorities []Authority) error {
	return m.planned(secrets, authorities, (*builder).discard)
}

// planned has finish end the plan for these lists, if they are valid.
func (m *Manager) planned(secrets []Spec, authorities []Authority, finish func(*builder)) error {
	m.reload.Lock()
	defer m.reload.Unlock()
	if m.ctx.Err() != nil {
		return ErrClosed
	}
	s, err := checked(secrets, authorities)
	if err != nil {
		return err
	}
	b, err := m.plan(s)
	if err == nil {
		finish(b)
	}
	return err
}

// plan makes the next directory and checks it.
func (m *Manager) plan(s settings) (*builder, error) {
	b := m.build(s, m.current.Load())
	if err := b.check(); err != nil {
		b.discard()
		return nil, err
	}
	return b, nil
}

// discard ends what was made for nothing, and the places of names that stay unknown.
func (b *builder) discard() {
	for a := range b.fresh {
		a.cancel()
	}
	for _, l := range b.born {
		l.cancel()
	}
	b.places.configured(b.last.secrets)
}

// apply puts the directory in force. A secret is ended before its name is another's, and
// the bundles know the roots of all their authorities before one of them publishes.
func (b *builder) apply() {
	b.endOthers()
	for bundle, is := range b.bound {
		bundle.bind(is)
	}
	for a, p := range b.conf {
		switch _, fresh := b.fresh[a]; {
		case fresh:
			a.start()
		case !slices.Contains(b.retired, a):
			a.configure(p)
		}
	}
	for _, a := range b.retired {
		a.retire(b.conf[a])
	}
	for a := range b.conf {
		a.do(func() {})
	}
	b.current.Store(b.directory)
	b.places.configured(b.secrets)
	b.forgetOthers()
	for l, p := range b.plans {
		l.do(func() { l.adopt(p) })
	}
	for _, l := range b.born {
		l.start()
	}
	for name := range changedNames(b.last, b.directory) {
		b.places.notifyName(name)
	}
}

// endOthers ends the secrets that are gone or of another kind now.
func (b *builder) endOthers() {
	for name, h := range b.last.secrets {
		if b.secrets[name] == h {
			continue
		}
		h.end()
		if l, ok := h.(*leaf); ok {
			for _, a := range slices.AppendSeq(slices.Clone(b.last.retired), maps.Values(b.last.authorities)) {
				a.quietly(func() { a.ends.drop(l) })
			}
		}
		h.place().item.Store(nil)
	}
}

// forgetOthers removes the records of what is no longer configured.
func (b *builder) forgetOthers() {
	for name := range b.last.authorities {
		if b.authorities[name] == nil {
			b.keeper.forget(RecordOfRoots(name))
		}
	}
	for _, l := range b.last.leaves() {
		if b.secrets[l.name] != holder(l) {
			b.keeper.forget(RecordOf(l.name))
		}
	}
}

func (a *authority) start() {
	a.spawn(a.run)
	a.quietly(a.learn)
}

func (l *leaf) start() { l.spawn(l.run) }

// adopt takes a new plan.
func (l *leaf) adopt(p plan) {
	last := l.plan
	l.notDue()
	l.plan = p
	same := p.spec.KeyType == last.spec.KeyType && p.spec.Identity.Equal(last.spec.Identity)
	l.retry(same)
	l.kicked = true
	if l.next != nil {
		l.keepNext(same)
	}
	l.credential = l.credential.reloaded(last.authorities[0], p.authorities[0])
	l.lookForToken()
	l.anchor = anchored{}
	if l.held != nil {
		l.reschedule(last.spec, same)
	}
}

// retry repeats the request in flight or that failed; to an authority, sending its last order
// again is a retry.
func (l *leaf) retry(same bool) {
	if l.flight != nil {
		sent := l.sentTo(l.flight.by)
		sent.order = cmp.Or(l.flight.made.Load(), sent.order)
	}
	l.abandon()
	l.rotation.Kick()
	l.at = 0
	maps.DeleteFunc(l.sent, func(a *authority, _ *sent) bool { return !l.signedBy(a) })
	for _, sent := range l.sent {
		sent.away = time.Time{}
	}
	if !same {
		l.forgetOrders()
	}
}

// keepNext keeps a certificate that is not valid yet, unless it is not what is wanted now.
func (l *leaf) keepNext(same bool) {
	by := l.next.by
	if same && l.signedBy(by) && by.allowed(l.next.chain.Root) {
		return
	}
	by.forget(l)
	if l.held != nil && l.by == by {
		ends := l.held.Ends
		by.do(func() { by.ends.set(l, ends) })
	}
	l.next = nil
	l.rotation.Discard()
}

// reschedule moves the renewal of what is held if the settings ask for it.
func (l *leaf) reschedule(last Spec, same bool) {
	item := *l.item.Load()
	switch {
	case !same || !l.signedBy(l.by):
		item.RenewAt = l.now() // what is held is served until its successor is there
		l.log.Info("settings changed, replacing the held certificate", "fingerprint", pki.Fingerprint(l.held.Leaf))
	case l.by.gives():
		return // its authority says when
	case l.spec.RenewRatio != last.RenewRatio || l.spec.RenewJitter != last.RenewJitter:
		item.RenewAt = rotation.Renewal(l.spec.RenewRatio, l.spec.RenewJitter, item.Issued, item.NotAfter)
		l.store(&item)
	default:
		return
	}
	l.rotation.RenewAt(item.RenewAt)
	l.item.Store(&item) // same content, so no notification
}

// signedBy reports whether an authority may sign the secret.
func (p plan) signedBy(a *authority) bool { return slices.Contains(p.authorities, a) }
