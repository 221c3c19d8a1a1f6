package secret

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Manager obtains the configured secrets from their authorities and rotates them, whether
// or not anyone asks. It is a [Source]. An unknown name may be watched, as
// [Manager.Reload] can make it known. All methods are safe for concurrent use.
//
// Peek no longer returns a certificate that has expired without a successor. The expiry
// does not notify watchers: those that hold the certificate may keep it.
type Manager struct {
	engine
	places  places
	current atomic.Pointer[directory]
	reload  sync.Mutex // serializes Reload and Close
	kept    func()     // stops the keeper
	ctx     context.Context
	cancel  context.CancelFunc
}

// engine is what all parts of a Manager share.
type engine struct {
	config Config // without Secrets and Authorities
	keeper *keeper
	urgent urgency
	wg     sync.WaitGroup
}

func (e *engine) now() time.Time  { return e.config.Now() }
func (e *engine) observe(o Event) { e.config.Observe(o) }
func (e *engine) spawn(f func())  { e.wg.Go(f) }

var _ Source = (*Manager)(nil)

// New checks config and returns a Manager that has begun to obtain every secret in it. It
// does not wait for the first certificate. With a [Storage], it restores what the last run
// stored and is still valid; it waits for that for a quarter of a second, and up to 5
// seconds for the roots. Secrets that are watched come first. Close stops the Manager. An error
// names the invalid secret or authority, its value and what is allowed; New has then
// contacted no authority.
func New(config Config) (*Manager, error) {
	config = config.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{engine: engine{config: config, keeper: newKeeper(config)}, ctx: ctx, cancel: cancel}
	s, err := checked(config.Secrets, config.Authorities)
	if err != nil {
		cancel()
		return nil, err
	}
	m.begin(m.build(s, &directory{}))
	return m, nil
}

// begin starts the first directory, with what the last run stored.
func (m *Manager) begin(first *builder) {
	m.current.Store(first.directory)
	m.places.configured(first.secrets)
	r := m.restoreRoots(first.directory)
	m.kept = m.keeper.begin()
	for a := range first.fresh {
		a.spawn(a.run)
	}
	for _, l := range first.born {
		l.start()
	}
	m.restorePairs(r, first.authorities)
	for a := range first.fresh {
		a.quietly(a.learn)
	}
}

// Close stops all work and waits for it. It abandons a client that ignores its context
// after one second and gives a [Storage] 5 seconds to take what it has not yet stored. It
// notifies watchers; Peek then returns ErrClosed. Close is idempotent and returns nil.
func (m *Manager) Close() error {
	m.cancel()
	m.reload.Lock() // a Reload in progress ends soon
	defer m.reload.Unlock()
	m.wg.Wait()
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
		return nil, Unknown(name)
	}
	return h, nil
}

// Peek returns the item held for name, or an error that is [ErrUnknown], [ErrNotReady] or
// [ErrClosed]; ErrNotReady has the reason why the last attempt failed. It never blocks.
func (m *Manager) Peek(caller Caller, name string) (*Item, error) {
	h, err := m.find(caller, name)
	if err != nil {
		return nil, err
	}
	item := h.place().item.Load()
	if item == nil || item.Expired(m.config.Now()) {
		return nil, NotReady(name, h.status().Failure)
	}
	return item, nil
}

// Watch calls notify after each new item for name, when a reload makes the name known or
// unknown, and when the Manager closes; see [Source]. The error is [ErrUnknown] for a
// caller that is not admitted, or [ErrClosed].
func (m *Manager) Watch(caller Caller, name string, notify func(name string)) (stop func(), err error) {
	switch {
	case m.ctx.Err() != nil:
		return nil, ErrClosed
	case !m.config.Admit(caller, name):
		return nil, Unknown(name)
	}
	stop = m.places.watch(name, notify)
	if h := m.current.Load().secrets[name]; h != nil {
		h.nudge() // it may have been released
		if l, ok := h.(*leaf); ok {
			l.restorer.prefer(l)
		}
	}
	return stop, nil
}

// Get is the function [Get] with this source. All waiters share one request.
func (m *Manager) Get(ctx context.Context, caller Caller, name string) (*Item, error) {
	return Get(ctx, m, caller, name)
}

// Has reports whether version ([Item].Version) is the version held for name.
func (m *Manager) Has(caller Caller, name, version string) bool {
	item, err := m.Peek(caller, name)
	return err == nil && item.Version == version
}

// Release drops the key and certificate held for name, cancels a request in flight and
// removes the record from a [Storage]. The Manager obtains a new certificate, with a new
// key, once someone watches or gets the name; if someone is watching, at once. Callers
// that have the old one keep it until then. Release leaves a trust bundle as it is.
//
// Release does not overwrite the key's memory, as a stream may be sending it; the garbage
// collector frees it. The error is [ErrUnknown] or [ErrClosed].
func (m *Manager) Release(caller Caller, name string) error {
	h, err := m.find(caller, name)
	if err != nil {
		return err
	}
	if l, ok := h.(*leaf); ok {
		l.do(l.release)
	}
	return nil
}

// Kick retries every failed attempt of an authority at once. Call it when the token,
// settings or provider have changed; an empty name means all authorities.
func (m *Manager) Kick(authority string) {
	d := m.current.Load()
	for name, a := range d.authorities {
		if authority == "" || name == authority {
			a.feed.kicked.Store(true)
			a.refresh()
		}
	}
	for _, l := range d.leaves() {
		l.do(func() {
			if authority == "" || slices.Contains(l.spec.Authorities, authority) {
				l.kick()
			}
		})
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
