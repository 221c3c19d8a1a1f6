package secret

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// Renew makes the renewal of a held key and certificate due now, as an operator wants it after a leak
// of the key. The Manager requests a certificate for a new key and serves the old one until the new one
// is verified; [Manager.Status] shows the progress. The waits after failures and the limit of one
// request in flight apply. Renew fails if the secret has no certificate to renew, if a request is in
// flight or waits after a failure, or if its authority makes the key; the error is [ErrUnknown] for a
// name that is not configured or a caller that is not admitted, or [ErrClosed].
func (m *Manager) Renew(caller Caller, name string) error {
	h, err := m.find(caller, name)
	if err != nil {
		return err
	}
	l, ok := h.(*leaf)
	if !ok {
		return fmt.Errorf("%q is a trust bundle, which has no key to renew", name)
	}
	err = ErrClosed // unless the leaf's goroutine answers
	l.do(func() { err = l.renew() })
	return err
}

func (l *leaf) renew() error {
	held := l.item.Load()
	switch now := l.now(); {
	case held == nil:
		return fmt.Errorf("%q is not held yet: %w", l.name, ErrNotReady)
	case l.by.gives():
		return errors.New("its authority makes the key, and decides when to renew it")
	case l.flight != nil || l.next != nil:
		return fmt.Errorf("%q is being renewed", l.name)
	case l.rotation.Pausing(rotation.Now(now)) > 0:
		return fmt.Errorf("the last attempt failed, the next one begins at %s", now.Add(l.rotation.Pausing(rotation.Now(now))).UTC().Format("15:04:05Z"))
	}
	item := *held
	item.RenewAt = l.now()
	l.log.Info("renewing the held certificate on request", "serial", item.Serial, "fingerprint", item.Fingerprint)
	l.forgetOrders() // which have a key already
	l.rotation.RenewAt(item.RenewAt)
	l.item.Store(&item) // same content, so no notification
	l.store(&item)      // a restart must not forget it
	return nil
}
