// Package revocation adds certificate revocation lists (CRLs) to trust bundles. Call [New] with the
// files of the lists, or with feeds, which tell those of a CA, and serve [Set.Over] of a source instead of that source: its trust bundles
// then carry the lists that belong to them, so that roots and lists change in one push.
//
// A list is served only if a CA of the bundle signed it. The last good one stays until there is a
// later one. One goroutine reads the files, notices that time passes, and logs; each feed has one of
// its own. Each bundle's lock guards what it has, and is held over no call of a watcher.
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
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config says which trust bundles get revocation lists.
type Config struct {
	Bundles []Bundle
	// Debounce is how long after a file change to wait for more changes. Default: 100 ms.
	Debounce time.Duration
	// Poll is the interval of reads without an event, and of looks at the clock. Default: 10 s.
	Poll time.Duration
	// NoEvents disables file events and relies on Poll alone. Default: false.
	NoEvents bool
	// Observe receives an event of type [secret.Failed] with the reason "crl" when lists cannot
	// be taken, or are missing. Default: none.
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
	// Files hold lists, each as [pki.ParseCRLs] reads it, and Feeds tell them. A bundle has
	// one of either at least.
	Files []string
	Feeds []Feed
	// Chains name key pairs whose intermediate CAs are CAs of the bundle, too, as far as they
	// chain to its roots: peers usually have the same. Default: none.
	Chains []string
	// LeafOnly checks only the peer's own certificate. Otherwise each CA on its way, the root
	// included, needs a list, or the peer is refused.
	LeafOnly bool
	// Stale says what to serve when a CA has no current list. Default: [Keep].
	Stale Stale
}

// Stale says what to serve when a CA has no current list.
type Stale string

// The choices.
const (
	// Keep serves the lists that there are, expired or not: peers of a CA without a current
	// one are refused. A bundle that never had a list is not ready.
	Keep Stale = "keep"
	// Drop serves the bundle without any list until every CA has a current one: nobody is
	// refused, revoked or not.
	Drop Stale = "drop"
)

func (c Config) check() error {
	for i, b := range c.Bundles {
		switch {
		case b.Name == "":
			return errors.New("revocation lists are for a trust bundle without a name")
		case len(b.Files)+len(b.Feeds) == 0:
			return fmt.Errorf("revocation lists of %q: name the files, or who tells them", b.Name)
		case b.Stale != "" && b.Stale != Keep && b.Stale != Drop:
			return fmt.Errorf("revocation lists of %q: stale is %q; use keep or drop", b.Name, b.Stale)
		case slices.ContainsFunc(c.Bundles[:i], func(other Bundle) bool { return other.Name == b.Name }):
			return fmt.Errorf("revocation lists of %q are there twice", b.Name)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Set has the lists of all trust bundles. Its methods are safe for concurrent use.
type Set struct {
	bundles map[string]*bundle
	files   *filewatch.Watcher
	stops   []func()      // the watches of the source
	poke    chan struct{} // signals that the source has changed, or a feed
	feeds   []*listener
	heard   sync.WaitGroup
	cancel  context.CancelFunc
	done    chan struct{}
}

// New reads the files once and follows them until [Set.Close]. It looks up the bundles in source as
// the agent itself. Missing or malformed files are no error: they are logged, shown by
// [Set.Complete], and read again.
func New(cfg Config, source secret.Source) (*Set, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Set{bundles: make(map[string]*bundle), poke: make(chan struct{}, 1), done: make(chan struct{})}
	var paths []string
	for _, spec := range cfg.Bundles {
		spec.Stale = cmp.Or(spec.Stale, Keep)
		b := &bundle{told: make([]told, len(spec.Feeds)), spec: spec, source: source, now: cfg.Now, observe: cfg.Observe, log: cfg.Log.With("secret", spec.Name)}
		s.bundles[spec.Name] = b
		s.listen(b)
		paths = append(paths, spec.Files...)
		for _, name := range append([]string{spec.Name}, spec.Chains...) {
			s.follow(source, name)
		}
	}
	// Watch first, so that no change falls between the watch and the first read.
	s.files = filewatch.New(filewatch.Options{Debounce: cfg.Debounce, Poll: cfg.Poll, NoEvents: cfg.NoEvents, Log: cfg.Log}, paths...)
	s.look()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, l := range s.feeds {
		s.heard.Go(func() { l.run(ctx) })
	}
	go s.run(ctx)
	return s, nil
}

// follow is poked when name changes. A name that the source does not know needs no watch.
func (s *Set) follow(source secret.Source, name string) {
	stop, err := source.Watch(secret.Caller{}, name, func(string) { s.wake() })
	if err == nil {
		s.stops = append(s.stops, stop)
	}
}

func (s *Set) wake() {
	select {
	case s.poke <- struct{}{}:
	default: // a wake-up is pending
	}
}

func (s *Set) run(ctx context.Context) {
	defer close(s.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.files.C: // also when only time has passed
		case <-s.poke:
		}
		s.look()
	}
}

func (s *Set) look() {
	for _, b := range s.bundles {
		b.look()
	}
}

// Close stops following the files and feeds. Sources made by [Set.Over] then keep the lists they have. Close is
// idempotent; a nil Set has nothing to close.
func (s *Set) Close() {
	if s == nil {
		return
	}
	s.cancel()
	<-s.done
	s.heard.Wait()
	s.files.Close()
	for _, stop := range s.stops {
		stop()
	}
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
	b := o.set.bundles[name]
	if err != nil || b == nil || item.Kind != secret.TrustBundle {
		return item, err
	}
	return b.dress(item)
}

// Watch implements [secret.Source].
func (o over) Watch(caller secret.Caller, name string, notify func(string)) (stop func(), err error) {
	unwatch, err := o.Source.Watch(caller, name, notify)
	b := o.set.bundles[name]
	if err != nil || b == nil {
		return unwatch, err
	}
	leave := b.watch(notify)
	return func() { unwatch(); leave() }, nil
}
