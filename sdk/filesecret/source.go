// Package filesecret serves secrets from files that others write. [New] makes a
// [secret.Source] that reads and checks the files and watches them for changes of any
// kind. Names are configured or carry their paths (file-cert:, file-root:) within allowed
// folders. [Layouts] lists where platforms mount files. One goroutine reads the files; a
// lock guards what is served.
package filesecret

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Source is a [secret.Source] backed by files. All methods are safe for concurrent use. It
// reads a name that carries its paths only while someone watches it; until then Peek
// returns ErrNotReady.
type Source struct {
	config  Config
	folders folders
	files   *filewatch.Watcher
	refused refusals

	mu      sync.Mutex
	entries map[string]*entry
	dynamic int // number of dynamic entries
	closed  bool

	poke   chan struct{} // signals changed entries
	cancel context.CancelFunc
	done   chan struct{}
}

var _ secret.Source = (*Source)(nil)

// New reads the configured secrets once and returns a Source that watches their files
// until [Source.Close]. Invalid or missing files do not make it fail: the Source logs them,
// shows them in [Source.Status] and reads them again.
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
	if err := s.addCredential(); err != nil {
		return nil, err
	}
	// Watch first, so that no change falls between the watch and the first read.
	s.files = filewatch.New(filewatch.Options{
		Debounce: config.Debounce, Poll: config.Poll, NoEvents: config.NoEvents, Log: config.Log,
	}, s.paths(s.all())...)
	s.followFolder()
	s.look(s.all(), everything)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.run(ctx)
	return s, nil
}

// Close stops watching the files and notifies watchers; Peek then returns
// [secret.ErrClosed]. Close is idempotent and returns nil.
func (s *Source) Close() error {
	s.cancel()
	<-s.done
	for _, notify := range s.end() {
		notify()
	}
	return nil
}

// end marks the Source as closed and, the first time, returns the notices to send.
func (s *Source) end() (tell []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, e := range s.entries {
		tell = append(tell, e.watchers.All()...)
	}
	return tell
}

// Peek returns the item held for name, or an error that is [secret.ErrUnknown],
// [secret.ErrNotReady], with the reason why the files could not be used, or [secret.ErrClosed].
func (s *Source) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, secret.ErrClosed
	}
	e := s.entries[name]
	switch {
	case e == nil && !s.allowed(name), e != nil && e.unknown():
		return nil, secret.Unknown(name)
	case e == nil:
		return nil, secret.NotReady(name, nil)
	case e.held == nil, e.held.Expired(s.config.Now()):
		return nil, secret.NotReady(name, e.failure)
	}
	return e.held, nil
}

// Watch calls notify after each new item for name and when the Source closes; see
// [secret.Source]. An error is [secret.ErrUnknown] or [secret.ErrClosed].
func (s *Source) Watch(_ secret.Caller, name string, notify func(name string)) (stop func(), err error) {
	e, remove, err := s.join(name, notify)
	switch {
	case errors.Is(err, secret.ErrClosed):
		return nil, err
	case err != nil: // logged without the lock: a handler may ask back
		s.refused.tell(name, err)
		return nil, secret.Unknown(name)
	}
	return func() { s.leave(e, remove) }, nil
}

// join adds a watcher to the entry of name, which it makes if need be.
func (s *Source) join(name string, notify func(string)) (e *entry, remove func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, secret.ErrClosed
	}
	if e = s.entries[name]; e == nil {
		if e, err = s.admit(name); err != nil {
			return nil, nil, err
		}
	}
	return e, e.watchers.Add(func() { notify(name) }), nil
}

// leave removes a watcher, and a dynamic name with its last watcher.
func (s *Source) leave(e *entry, remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	remove()
	if e.dynamic && e.watchers.Len() == 0 && s.entries[e.spec.Name] == e {
		delete(s.entries, e.spec.Name)
		s.dynamic--
		s.nudge()
	}
}

// admit makes the entry of a dynamic name; the caller holds s.mu.
func (s *Source) admit(name string) (*entry, error) {
	spec, err := s.parse(name)
	if err != nil {
		return nil, err
	}
	if s.dynamic >= s.config.MaxNames {
		return nil, fmt.Errorf("%d names of files are watched already, no more are allowed", s.dynamic)
	}
	e := &entry{spec: spec, dynamic: true, read: s.folders.read}
	if !isDynamic(name) {
		e.federated, e.read = true, readFile
	}
	s.entries[name] = e
	s.dynamic++
	s.nudge()
	return e, nil
}

// allowed reports whether a name that carries its paths may be served once it is watched.
func (s *Source) allowed(name string) bool {
	_, err := s.parse(name)
	return err == nil && isDynamic(name)
}

var errNotConfigured = errors.New("that name is not configured")

func (s *Source) parse(name string) (Spec, error) {
	if spec, ok := s.federatedSpec(name); ok {
		return spec, nil
	}
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
	default: // a wake-up is pending
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
