// Package revocation (experimental) adds certificate revocation lists (CRLs) to trust bundles.
// Call [New] with the files of the lists, or with feeds of a CA's lists, and serve [Set.Over] of
// a source instead of that source: its trust bundles then carry the lists that belong to them, so
// that roots and lists change in one push.
//
// A list is served only if a CA of the bundle signed it. The last good one stays until there is a
// later one. One goroutine reads the files, verifies the lists, notices that time passes, and logs;
// each feed has one of its own. What was last verified is served meanwhile. Each bundle's lock guards
// what it has, and is held over no verification and no call of a watcher.
package revocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config selects the trust bundles that get revocation lists.
type Config struct {
	Bundles []Bundle
	// Debounce is how long after a file change to wait for more changes. Default: 100 ms.
	Debounce time.Duration
	// Poll is the interval of reads without an event, and of looks at the clock. Default: 10 s.
	Poll time.Duration
	// NoEvents disables file events and relies on Poll alone. Default: false.
	NoEvents bool
	// Renew has the key pair of a name in Chains renewed, whose certificate a list has. It is called
	// once for each certificate, once a minute at most for a name, after an error again within Poll, and
	// not concurrently; the lists wait for it. Default: nothing is done.
	Renew func(name string) error
	// Observe receives an event of type [secret.Failed] with the reason "crl" when lists cannot
	// be taken, or are missing, and with the reason "revoked" before Renew. Default: none.
	Observe func(secret.Event)
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log is where lists are announced that end soon. Default: [slog.Default].
	Log *slog.Logger
}

// Bundle is one trust bundle with its lists.
type Bundle struct {
	// Name is that of the trust bundle, such as "ROOTCA".
	Name string
	// Files hold lists, each as [pki.ParseCRLs] reads it, and Feeds deliver them. A bundle has
	// at least one file or feed.
	Files []string
	Feeds []Feed
	// Chains name key pairs whose intermediate CAs are CAs of the bundle, too, as far as they
	// chain to its roots: peers usually have the same. Those whose certificate is revoked are renewed
	// (Config.Renew). Default: none.
	Chains []string
	// LeafOnly checks only the peer's own certificate. Otherwise each CA on its way, the root
	// included, needs a list, or the peer is refused.
	LeafOnly bool
	// Stale selects what to serve when a CA has no current list. Default: [Keep].
	Stale Stale
}

// Stale selects what to serve when a CA has no current list.
type Stale string

// The choices.
const (
	// Keep serves the lists that there are, expired or not: peers of a CA without a current
	// one are refused. A bundle that never had a list is not ready.
	Keep Stale = "keep"
	// Drop serves the bundle without any list until every CA has a current one: no peer is
	// refused, revoked or not.
	Drop Stale = "drop"
)

func check(bundles []Bundle) error {
	for i, b := range bundles {
		switch {
		case b.Name == "":
			return errors.New("revocation lists are for a trust bundle without a name")
		case len(b.Files)+len(b.Feeds) == 0:
			return fmt.Errorf("revocation lists of %q: name their files or feeds", b.Name)
		case b.Stale != "" && b.Stale != Keep && b.Stale != Drop:
			return fmt.Errorf("revocation lists of %q: stale is %q; use keep or drop", b.Name, b.Stale)
		case slices.ContainsFunc(bundles[:i], func(other Bundle) bool { return other.Name == b.Name }):
			return fmt.Errorf("revocation lists of %q are there twice", b.Name)
		}
	}
	return nil
}

// same reports whether both say the same. Feeds of one name are.
func (b Bundle) same(other Bundle) bool {
	return b.Name == other.Name && slices.Equal(b.Files, other.Files) && slices.Equal(b.Chains, other.Chains) && b.LeafOnly == other.LeafOnly &&
		cmp.Or(b.Stale, Keep) == cmp.Or(other.Stale, Keep) &&
		slices.EqualFunc(b.Feeds, other.Feeds, func(a, b Feed) bool { return a.Name == b.Name })
}

func (c Config) withDefaults() Config {
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Renew == nil {
		c.Renew = func(string) error { return errors.New("no owner is configured") }
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Set has the lists of all trust bundles. Its methods are safe for concurrent use.
type Set struct {
	cfg     Config
	source  secret.Source
	poke    chan struct{} // signals that the source has changed, or a feed
	reloads chan reload
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	done    chan struct{}
	files   *filewatch.Watcher // nil without bundles; owned by the Set's goroutine

	mu       sync.Mutex
	bundles  map[string]*bundle // replaced as a whole
	watchers watchers.Set[watcher]
}

// watcher gets the changes of one name.
type watcher struct {
	name   string
	notify func(name string)
}

type reload struct {
	bundles []Bundle
	done    chan struct{}
}

// New reads the files once and follows them until [Set.Close]. It looks up the bundles in source as
// the agent itself. Missing or malformed files do not make it fail: they are logged, shown by
// [Set.Complete], and read again.
func New(cfg Config, source secret.Source) (*Set, error) {
	cfg = cfg.withDefaults()
	if err := check(cfg.Bundles); err != nil {
		return nil, err
	}
	s := &Set{
		cfg: cfg, source: source, poke: make(chan struct{}, 1), reloads: make(chan reload), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.install(cfg.Bundles)
	go s.run()
	return s, nil
}

// Reload replaces the bundles. One that stays the same goes on; one that changes keeps the lists
// that it holds, as far as their CAs are in it, until later ones come. A watcher is notified if what
// it watches has changed. After [Set.Close] it does nothing.
func (s *Set) Reload(bundles []Bundle) error {
	if err := check(bundles); err != nil {
		return err
	}
	r := reload{bundles, make(chan struct{})}
	select {
	case s.reloads <- r:
		<-r.done
	case <-s.done:
	}
	return nil
}

func (s *Set) wake() {
	select {
	case s.poke <- struct{}{}:
	default: // a wake-up is pending
	}
}

func (s *Set) run() {
	defer close(s.done)
	for {
		var changed <-chan struct{}
		if s.files != nil {
			changed = s.files.C
		}
		select {
		case <-s.ctx.Done():
			s.install(nil)
			return
		case r := <-s.reloads:
			s.install(r.bundles)
			close(r.done)
		case <-changed: // also when only time has passed
			s.look()
		case <-s.poke:
			s.look()
		}
	}
}

func (s *Set) look() {
	for _, b := range s.current() {
		b.look()
	}
}

// current returns the bundles. The map is never modified.
func (s *Set) current() map[string]*bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bundles
}

func (s *Set) of(name string) *bundle { return s.current()[name] }

// Close stops following the files and feeds. Sources made by [Set.Over] then keep the lists they
// have. Close is idempotent; a nil Set has nothing to close.
func (s *Set) Close() {
	if s == nil {
		return
	}
	s.cancel()
	<-s.done
}

// Over returns source with the lists in its trust bundles. The source's bundles must be those of the
// source that New got; a nil Set returns source itself.
func (s *Set) Over(source secret.Source) secret.Source {
	if s == nil {
		return source
	}
	return over{source, s}
}

type over struct {
	secret.Source
	set *Set
}

// Peek implements [secret.Source].
func (o over) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	item, err := o.Source.Peek(caller, name)
	b := o.set.of(name)
	if err != nil || b == nil || item.Kind != secret.TrustBundle {
		return item, err
	}
	return b.dress()
}

// Watch implements [secret.Source].
func (o over) Watch(caller secret.Caller, name string, notify func(string)) (stop func(), err error) {
	unwatch, err := o.Source.Watch(caller, name, notify)
	if err != nil {
		return nil, err
	}
	leave := o.set.watchers.Add(watcher{name, notify}) // also without lists: a reload may add them
	return func() { unwatch(); leave() }, nil
}

// notify calls the watchers of a name. Lists change so rarely that all of them are looked through.
func (s *Set) notify(name string) {
	for _, w := range s.watchers.All() {
		if w.name == name {
			w.notify(name)
		}
	}
}
