package xds

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

const thingURL = "type.googleapis.com/test.Thing"

// memorySource is a source in memory. Names in known that it has no resource for are
// not ready; names that it does not know are unknown.
type memorySource struct {
	mu       sync.Mutex
	known    map[string]*Resource
	watchers map[*memoryWatch]string
	forbid   func(caller, name string) bool
	peeks    int
	// onWatch, if set, may refuse to have a name watched.
	onWatch func() error
	ended   bool // alice's right
}

type memoryWatch struct{ notify func(string) }

func newMemorySource(names ...string) *memorySource {
	s := &memorySource{known: map[string]*Resource{}, watchers: map[*memoryWatch]string{}, forbid: func(string, string) bool { return false }}
	for _, name := range names {
		s.known[name] = nil
	}
	return s
}

func (s *memorySource) Peek(caller, name string) (*Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peeks++
	r, ok := s.known[name]
	switch {
	case s.ended && caller == "alice":
		return nil, fmt.Errorf("%q: %w", name, &EndError{status.Error(codes.Unauthenticated, "no longer")})
	case !ok || s.forbid(caller, name):
		return nil, fmt.Errorf("%q: %w", name, ErrUnknown)
	case r == nil:
		return nil, ErrNotReady
	}
	return r, nil
}

func (s *memorySource) Watch(_, name string, notify func(string)) (func(), error) {
	if s.onWatch != nil {
		if err := s.onWatch(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &memoryWatch{notify}
	s.watchers[w] = name
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}, nil
}

// put sets a resource and tells those who watch it.
func (s *memorySource) put(r *Resource) {
	if r.Body == nil {
		r.Body = bodyOf(r.Name + "=" + r.Version)
	}
	s.mu.Lock()
	s.known[r.Name] = r
	s.mu.Unlock()
	s.notify(r.Name)
}

func bodyOf(content string) *anypb.Any { return &anypb.Any{TypeUrl: thingURL, Value: []byte(content)} }

func (s *memorySource) set(name, version string) { s.put(&Resource{Name: name, Version: version}) }

// have sets version 1 of these.
func (s *memorySource) have(names ...string) {
	for _, name := range names {
		s.set(name, "1")
	}
}

func (s *memorySource) remove(name string) {
	s.mu.Lock()
	delete(s.known, name)
	s.mu.Unlock()
	s.notify(name)
}

// endAlice has the streams of alice ended that look again.
func (s *memorySource) endAlice() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.notify("a")
}

// unready has nothing of a name any more, or yet.
func (s *memorySource) unready(name string) {
	s.mu.Lock()
	s.known[name] = nil
	s.mu.Unlock()
	s.notify(name)
}

func (s *memorySource) notify(name string) {
	s.mu.Lock()
	var notify []func(string)
	for w, watched := range s.watchers {
		if watched == name {
			notify = append(notify, w.notify)
		}
	}
	s.mu.Unlock()
	for _, f := range notify {
		f(name)
	}
}

func (s *memorySource) watched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, name := range s.watchers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
