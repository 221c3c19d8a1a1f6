package secret

import (
	"fmt"
	"maps"
)

// SetAuthority replaces the client and the rules of one authority in one step, and leaves the
// secrets of all others alone. A reply to a request that was sent before is dropped if the client
// or a rule for replies differs. What [Manager.Reload] says of an authority of the same name
// holds here, too; on error nothing changes.
func (m *Manager) SetAuthority(conf Authority) error {
	if err := conf.check(); err != nil {
		return err
	}
	m.reload.Lock()
	defer m.reload.Unlock()
	s := m.current.Load().settings
	_, known := s.authorities[conf.Name]
	switch {
	case m.ctx.Err() != nil:
		return ErrClosed
	case !known:
		return fmt.Errorf("authority %q is not configured", conf.Name)
	}
	s.authorities = maps.Clone(s.authorities)
	s.authorities[conf.Name] = conf.withDefaults()
	b, err := m.plan(s)
	if err == nil {
		b.keepOthers(b.authorities[conf.Name])
		b.apply()
	}
	return err
}

// keepOthers has apply leave all other authorities, and secrets that one does not sign, alone.
func (b *builder) keepOthers(one *authority) {
	for _, a := range b.authorities {
		if a != one {
			delete(b.conf, a)
		}
	}
	maps.DeleteFunc(b.plans, func(_ *leaf, p plan) bool {
		return !p.signedBy(one)
	})
}
