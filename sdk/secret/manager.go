package secret

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Manager obtains the configured secrets from their authorities and rotates them,
// whether or not anybody asks. It is a [Source] whose names do not change, so that
// Watch answers ErrUnknown. All methods may be called by any goroutine.
//
// A certificate that has expired without a successor is no longer answered by
// Peek, and watchers are not told of that: who has it may keep it.
type Manager struct {
	config      Config
	secrets     map[string]holder // fixed
	names       []string          // sorted
	authorities []*authority

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

var _ Source = (*Manager)(nil)

// holder is a leaf or a trustBundle.
type holder interface {
	place() *slot
	nudge()
	status() Status
}

// New checks the configuration and returns a Manager that has begun to obtain
// every secret in it. It does not wait for the first. Close ends it.
func New(config Config) (*Manager, error) {
	config = config.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{config: config, secrets: make(map[string]holder), ctx: ctx, cancel: cancel}
	if err := m.build(); err != nil {
		cancel()
		return nil, err
	}
	m.start()
	return m, nil
}

func (m *Manager) build() error {
	known := make(map[string]*authority)
	for _, a := range m.config.Authorities {
		if err := a.check(); err != nil {
			return err
		}
		if known[a.Name] != nil {
			return fmt.Errorf("authority %q is there twice", a.Name)
		}
		known[a.Name] = newAuthority(a, m.config, m.ctx.Done())
		m.authorities = append(m.authorities, known[a.Name])
	}
	b := builder{Manager: m, known: known, turns: make(map[string]turn), taken: make(map[string]bool)}
	for _, spec := range m.config.Secrets {
		if err := b.add(spec.withDefaults()); err != nil {
			return err
		}
	}
	slices.Sort(m.names)
	return nil
}

// builder is what secrets share while they are made.
type builder struct {
	*Manager
	known map[string]*authority
	turns map[string]turn
	taken map[string]bool
}

func (b *builder) add(spec Spec) error {
	if err := spec.check(); err != nil {
		return err
	}
	if b.secrets[spec.Name] != nil {
		return fmt.Errorf("secret %q is there twice", spec.Name)
	}
	from := make([]*authority, len(spec.Authorities))
	for i, name := range spec.Authorities {
		if from[i] = b.known[name]; from[i] == nil {
			return fmt.Errorf("secret %q: authority %q is not configured", spec.Name, name)
		}
	}
	b.names = append(b.names, spec.Name)
	if spec.Kind == TrustBundle {
		b.addBundle(spec, from)
	} else {
		b.addLeaf(spec, from)
	}
	return nil
}

func (b *builder) addBundle(spec Spec, from []*authority) {
	bundle := &trustBundle{spec: spec, sources: from, now: b.config.Now, observe: b.config.Observe}
	for _, a := range from {
		a.bundles = append(a.bundles, bundle)
	}
	b.secrets[spec.Name] = bundle
}

func (b *builder) addLeaf(spec Spec, from []*authority) {
	for _, name := range spec.Identity.Names() {
		b.taken[name] = true
	}
	l := &leaf{
		spec: spec, now: b.config.Now, observe: b.config.Observe, log: b.config.Log.With("secret", spec.Name),
		taken: b.taken, spawn: b.wg.Go,
		wakeup: make(chan struct{}, 1), inbox: make(chan func()), replies: make(chan *attempt),
	}
	for _, a := range from {
		l.choices = append(l.choices, &choice{authority: a, asks: b.turn(a.Name, spec.Identity)})
		a.leaves = append(a.leaves, l)
	}
	b.secrets[spec.Name] = l
}

// turn returns the one turn of all secrets of an identity: one request in flight.
func (b *builder) turn(authority string, id pki.Identity) turn {
	key := authority + "\x00" + id.String()
	if b.turns[key] == nil {
		b.turns[key] = newTurn()
	}
	return b.turns[key]
}

func (m *Manager) start() {
	for _, a := range m.authorities {
		m.wg.Go(a.run)
		m.wg.Go(func() { (&feed{authority: a}).run(m.ctx) })
	}
	for _, h := range m.secrets {
		if l, ok := h.(*leaf); ok {
			m.wg.Go(func() { l.run(m.ctx) })
		}
	}
}

// Close ends everything and returns when all is quiet; a call of a client that
// ignores its context is left behind after a second. Watchers are told, Peek then
// answers ErrClosed. Close may be called more than once; it returns nil.
func (m *Manager) Close() error {
	m.cancel()
	m.wg.Wait()
	for _, h := range m.secrets {
		h.place().notify()
	}
	return nil
}

func (m *Manager) find(caller Caller, name string) (holder, error) {
	if m.ctx.Err() != nil {
		return nil, ErrClosed
	}
	h := m.secrets[name]
	if h == nil || !m.config.Admit(caller, name) {
		return nil, fmt.Errorf("secret %.256q: %w", name, ErrUnknown)
	}
	return h, nil
}

// Peek returns what is held for name now.
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

// Watch has notify called after each new item for name, and when the Manager ends.
func (m *Manager) Watch(caller Caller, name string, notify func(name string)) (stop func(), err error) {
	h, err := m.find(caller, name)
	if err != nil {
		return nil, err
	}
	stop = h.place().watch(&watcher{name, notify})
	h.nudge() // it may have been released
	return stop, nil
}

// Get returns the item for name and waits for it as long as ctx allows. However
// many wait, one request is made.
func (m *Manager) Get(ctx context.Context, caller Caller, name string) (*Item, error) {
	item, err := Get(ctx, m, caller, name)
	if err == nil || ctx.Err() == nil {
		return item, err
	}
	if h := m.secrets[name]; h != nil {
		if f := h.status().Failure; f != nil {
			return nil, fmt.Errorf("%w; the last attempt: %s", err, f.Text)
		}
	}
	return nil, err
}

// Has tells whether that version of name is what is held now.
func (m *Manager) Has(caller Caller, name, version string) bool {
	item, err := m.Peek(caller, name)
	return err == nil && item.Version == version
}

// Release lets go of the key and certificate held for name, and of a request on
// its way. A new one, with a new key, is obtained when somebody watches or gets
// the name, which is at once if somebody watches it already; who has the old one
// keeps it until then. A trust bundle is nothing to let go of: Release leaves it.
//
// The memory of the key is the garbage collector's: it is not overwritten, as a
// stream may be sending it.
func (m *Manager) Release(caller Caller, name string) error {
	h, err := m.find(caller, name)
	if err != nil {
		return err
	}
	if l, ok := h.(*leaf); ok {
		l.do(m.ctx, l.release)
		for _, c := range l.choices {
			c.forget(l)
		}
	}
	return nil
}

// Kick has every failed attempt of an authority made again at once. Call it when
// its token, settings or provider have changed; an empty name is all authorities.
func (m *Manager) Kick(authority string) {
	for _, a := range m.authorities {
		if authority != "" && a.Name != authority {
			continue
		}
		a.kicked.Store(true)
		a.refresh()
		for _, l := range a.leaves {
			l.do(m.ctx, l.kick)
		}
	}
}

// Status returns the state of every secret, sorted by name.
func (m *Manager) Status() []Status {
	all := make([]Status, len(m.names))
	for i, name := range m.names {
		all[i] = m.secrets[name].status()
	}
	return all
}

func (l *leaf) place() *slot        { return &l.slot }
func (b *trustBundle) place() *slot { return &b.slot }

// nudge does nothing: a bundle is never released.
func (b *trustBundle) nudge() {}
