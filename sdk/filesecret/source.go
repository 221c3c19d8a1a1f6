// Package filesecret serves secrets that others put into files: [New] makes a
// [secret.Source] that reads them, checks them, and watches them for changes,
// however these are made. Names are configured, or carry their files (file-cert:,
// file-root:) where folders are allowed for that. [Mounted] finds the files that a
// platform mounts.
package filesecret

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const defaultMaxNames = 100

// Config says which files are served by which names.
type Config struct {
	// Secrets are the configured names.
	Secrets []Spec
	// Folders are those that the names file-cert:<chain>~<key> and file-root:<ca>
	// may read from; file-root:system is always allowed where there is one. A link
	// that leads out of them is not followed. Default: such names are unknown.
	Folders []string
	// MaxNames bounds how many such names are served at once. Default: 100.
	MaxNames int
	// SystemRoots are the files and folders with the system's roots. Default: the
	// well-known ones.
	SystemRoots []string

	// Debounce is how long more changes of files are awaited after the first.
	// Default: 100 ms.
	Debounce time.Duration
	// Poll is the time between two looks at all files, as some file systems tell of
	// no change. Default: 10 s.
	Poll time.Duration
	// NoEvents leaves it to Poll alone. Default: false.
	NoEvents bool

	// Observe is told what happens, for metrics; see [secret.Config]. A name that
	// carries its files is told by its prefix alone. Default: nobody.
	Observe func(secret.Event)
	// Now is the wall clock. Default: that of this machine.
	Now func() time.Time
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

// Spec is one secret and its files (PEM): Chain and Key, or Roots.
type Spec struct {
	Name       string
	Chain, Key string
	// Roots is a file of trust anchors, or [System].
	Roots string
}

func (s Spec) kind() secret.Kind {
	if s.Roots != "" {
		return secret.TrustBundle
	}
	return secret.KeyPair
}

func (s Spec) check() error {
	switch {
	case s.Name == "" || isDynamic(s.Name):
		return fmt.Errorf("a secret of files is named %q: give it a name that begins neither with %q nor %q", s.Name, certPrefix, rootPrefix)
	case s.Roots != "" && s.Chain+s.Key == "", s.Roots == "" && s.Chain != "" && s.Key != "":
		return nil
	}
	return fmt.Errorf("secret %q: name the files of its chain and its key, or the file of its roots", s.Name)
}

func (c Config) withDefaults() Config {
	if c.MaxNames == 0 {
		c.MaxNames = defaultMaxNames
	}
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Source is a [secret.Source] of files. All methods may be called by any
// goroutine. A name that carries its files is read while somebody watches it; to
// Peek alone it is not ready.
type Source struct {
	config  Config
	folders folders
	files   *filewatch.Watcher
	refused refusals

	mu      sync.Mutex
	entries map[string]*entry
	dynamic int // how many of them
	closed  bool

	poke   chan struct{} // the entries have changed
	cancel context.CancelFunc
	done   chan struct{}
}

var _ secret.Source = (*Source)(nil)

// New reads the configured secrets once and returns a Source that keeps an eye on
// their files until [Source.Close]. Bad or missing files are no error: they are
// logged, shown by [Source.Status] and read again.
func New(config Config) (*Source, error) {
	config = config.withDefaults()
	allowed, err := newFolders(config.Folders)
	if err != nil {
		return nil, err
	}
	s := &Source{
		config: config, folders: allowed, entries: map[string]*entry{}, poke: make(chan struct{}, 1), done: make(chan struct{}),
		refused: refusals{log: config.Log, now: config.Now},
	}
	for _, spec := range config.Secrets {
		if err := spec.check(); err != nil {
			return nil, err
		}
		if s.entries[spec.Name] != nil {
			return nil, fmt.Errorf("secret %q is there twice", spec.Name)
		}
		s.entries[spec.Name] = &entry{spec: spec, read: readFile}
	}
	// The watch first: no change falls between it and the first look.
	s.files = filewatch.New(filewatch.Options{
		Debounce: config.Debounce, Poll: config.Poll, NoEvents: config.NoEvents, Log: config.Log,
	}, s.paths()...)
	s.look(everything)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.run(ctx)
	return s, nil
}

// Close ends the watch of the files. Watchers are told; Peek then answers
// [secret.ErrClosed]. It may be called more than once and returns nil.
func (s *Source) Close() error {
	s.cancel()
	<-s.done
	for _, notify := range s.end() {
		notify()
	}
	return nil
}

// end marks the Source as closed and returns whom to tell, the first time.
func (s *Source) end() (tell []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, e := range s.entries {
		tell = append(tell, e.notices()...)
	}
	return tell
}

// Peek returns what is held for name now, or an error that is [secret.ErrUnknown],
// [secret.ErrNotReady] or [secret.ErrClosed].
func (s *Source) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, secret.ErrClosed
	}
	e := s.entries[name]
	switch {
	case e == nil && !s.allowed(name), e != nil && e.forbidden:
		return nil, fmt.Errorf("secret %.256q: %w", name, secret.ErrUnknown)
	case e == nil, e.held == nil, e.held.Expired(s.config.Now()):
		return nil, fmt.Errorf("secret %.256q: %w", name, secret.ErrNotReady)
	}
	return e.held, nil
}

// Watch has notify called after each new item for name, and when the Source ends; see
// [secret.Source]. An error is [secret.ErrUnknown] or [secret.ErrClosed].
func (s *Source) Watch(_ secret.Caller, name string, notify func(name string)) (stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, secret.ErrClosed
	}
	e := s.entries[name]
	if e == nil {
		if e, err = s.admit(name); err != nil {
			s.refused.tell(name, err)
			return nil, fmt.Errorf("secret %.256q: %w", name, secret.ErrUnknown)
		}
	}
	w := &watcher{notify: notify}
	e.watchers = append(e.watchers, w)
	return func() { s.leave(e, w) }, nil
}

// leave removes a watcher; a dynamic name goes with its last one.
func (s *Source) leave(e *entry, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.watchers = slices.DeleteFunc(e.watchers, func(other *watcher) bool { return other == w })
	if e.dynamic && len(e.watchers) == 0 && s.entries[e.spec.Name] == e {
		delete(s.entries, e.spec.Name)
		s.dynamic--
		s.nudge()
	}
}

// admit makes the entry of a dynamic name. s.mu is held.
func (s *Source) admit(name string) (*entry, error) {
	spec, err := s.parse(name)
	if err != nil {
		return nil, err
	}
	if s.dynamic == s.config.MaxNames {
		return nil, fmt.Errorf("%d names of files are watched already, no more are allowed", s.dynamic)
	}
	e := &entry{spec: spec, dynamic: true, read: s.folders.read}
	s.entries[name] = e
	s.dynamic++
	s.nudge()
	return e, nil
}

func (s *Source) allowed(name string) bool {
	_, err := s.parse(name)
	return err == nil
}

var errNotConfigured = errors.New("nobody configured that name")

func (s *Source) parse(name string) (Spec, error) {
	if !isDynamic(name) || len(s.folders) == 0 {
		return Spec{}, errNotConfigured
	}
	spec, err := parseName(name)
	if err != nil {
		return Spec{}, err
	}
	for _, path := range spec.paths() {
		if !s.folders.allow(path) {
			return Spec{}, fmt.Errorf("%.256q: %w", path, errForbidden)
		}
	}
	return spec, nil
}

func (s *Source) nudge() {
	select {
	case s.poke <- struct{}{}:
	default: // it will look, already
	}
}

// Status returns the state of every configured secret, sorted by name.
func (s *Source) Status() []secret.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []secret.Status
	for _, e := range s.entries {
		if !e.dynamic {
			all = append(all, e.status(s.config.Now()))
		}
	}
	slices.SortFunc(all, func(a, b secret.Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}
