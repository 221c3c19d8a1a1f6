package secret

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Manager obtains the configured secrets from their authorities and rotates them,
// whether or not anybody asks. It is a [Source]; a name that is unknown may be
// watched, as a [Manager.Reload] can make it known. All methods may be called by any
// goroutine.
//
// A certificate that has expired without a successor is no longer answered by
// Peek, and watchers are not told of that: who has it may keep it.
type Manager struct {
	config  Config // but for Secrets and Authorities
	places  places
	current atomic.Pointer[generation]
	reload  sync.Mutex // held by the one Reload, and by Close
	keeper  *keeper
	kept    func() // ends the keeper

	ctx    context.Context
	cancel context.CancelFunc
}

var _ Source = (*Manager)(nil)

// New checks the configuration and returns a Manager that has begun to obtain
// every secret in it. It does not wait for the first, but for a [Storage], 5 seconds at
// most: what the last run kept and is still good is held when New returns. Close ends it.
// An error names the secret or authority that cannot be, what it says, and what would be
// right; nothing was asked of anybody then.
func New(config Config) (*Manager, error) {
	config = config.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{config: config, keeper: newKeeper(config), ctx: ctx, cancel: cancel}
	first, err := m.newGeneration(config.Secrets, config.Authorities)
	if err != nil {
		cancel()
		return nil, err
	}
	m.current.Store(first)
	m.places.configured(first.secrets)
	first.restore()
	m.kept = m.keeper.begin()
	first.start()
	return m, nil
}

// Close ends everything and returns when all is quiet; a call of a client that
// ignores its context is left behind after a second; a [Storage] has 5 seconds for what it
// was not given yet. Watchers are told, Peek then
// answers ErrClosed. Close may be called more than once; it returns nil.
func (m *Manager) Close() error {
	m.cancel()
	m.reload.Lock() // one that is under way ends soon
	defer m.reload.Unlock()
	m.current.Load().end()
	m.kept()
	m.places.notify()
	return nil
}

func (m *Manager) find(caller Caller, name string) (holder, error) {
	if m.ctx.Err() != nil {
		return nil, ErrClosed
	}
	h := m.current.Load().secrets[name]
	if h == nil || !m.config.Admit(caller, name) {
		return nil, unknown(name)
	}
	return h, nil
}

func unknown(name string) error { return fmt.Errorf("secret %.256q: %w", name, ErrUnknown) }

// Peek returns what is held for name now, or an error that is [ErrUnknown],
// [ErrNotReady] or [ErrClosed]. It never waits.
func (m *Manager) Peek(caller Caller, name string) (*Item, error) {
	h, err := m.find(caller, name)
	if err != nil {
		return nil, err
	}
	item := h.place().item.Load()
	if item == nil || item.Expired(m.config.Now()) {
		return nil, fmt.Errorf("secret %.256q: %w", name, ErrNotReady)
	}
	return item, nil
}

// Watch has notify called after each new item for name, when a reload makes the name
// known or unknown, and when the Manager ends; see [Source]. An error is [ErrUnknown],
// for a caller who is not admitted, or [ErrClosed].
func (m *Manager) Watch(caller Caller, name string, notify func(name string)) (stop func(), err error) {
	switch {
	case m.ctx.Err() != nil:
		return nil, ErrClosed
	case !m.config.Admit(caller, name):
		return nil, unknown(name)
	}
	stop = m.places.watch(&watcher{name, notify})
	if h := m.current.Load().secrets[name]; h != nil {
		h.nudge() // it may have been released
	}
	return stop, nil
}

// Get returns the item for name and waits for it as long as ctx allows. However
// many wait, one request is made. An error is [ErrUnknown] or [ErrClosed] at once, or
// when ctx ends [ErrNotReady], which also wraps the cause of ctx and says why the last
// attempt failed.
func (m *Manager) Get(ctx context.Context, caller Caller, name string) (*Item, error) {
	item, err := Get(ctx, m, caller, name)
	if err == nil || ctx.Err() == nil {
		return item, err
	}
	if h := m.current.Load().secrets[name]; h != nil {
		if f := h.status().Failure; f != nil {
			return nil, fmt.Errorf("%w; the last attempt: %s", err, f.Text)
		}
	}
	return nil, err
}

// Has tells whether that version ([Item].Version) of name is what is held now.
func (m *Manager) Has(caller Caller, name, version string) bool {
	item, err := m.Peek(caller, name)
	return err == nil && item.Version == version
}

// Release lets go of the key and certificate held for name, and of a request on
// its way; a [Storage] forgets them. A new one, with a new key, is obtained when somebody watches or gets
// the name, which is at once if somebody watches it already; who has the old one
// keeps it until then. A trust bundle is nothing to let go of: Release leaves it.
//
// The memory of the key is the garbage collector's: it is not overwritten, as a
// stream may be sending it. An error is [ErrUnknown] or [ErrClosed].
func (m *Manager) Release(caller Caller, name string) error {
	h, err := m.find(caller, name)
	if err != nil {
		return err
	}
	if l, ok := h.(*leaf); ok {
		l.do(l.release)
		for _, c := range l.choices {
			c.forget(l)
		}
	}
	return nil
}

// Kick has every failed attempt of an authority made again at once. Call it when
// its token, settings or provider have changed; an empty name is all authorities.
func (m *Manager) Kick(authority string) {
	for _, a := range m.current.Load().authorities {
		if authority != "" && a.Name != authority {
			continue
		}
		a.kicked.Store(true)
		a.refresh()
		for _, l := range a.leaves {
			l.do(l.kick)
		}
	}
}

// Status returns the state of every secret, sorted by name.
func (m *Manager) Status() []Status {
	g := m.current.Load()
	all := make([]Status, len(g.names))
	for i, name := range g.names {
		all[i] = g.secrets[name].status()
	}
	return all
}
