package discovery_test

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// memorySource is a source of texts that everybody who has a cluster may have.
type memorySource struct {
	mu      sync.Mutex
	texts   map[string]string
	watches map[*watch]bool
	asked   []discovery.Caller // by Peek
}

type watch struct {
	name   string
	notify func(string)
}

func newMemorySource() *memorySource {
	return &memorySource{texts: map[string]string{}, watches: map[*watch]bool{}}
}

func (s *memorySource) Peek(caller *discovery.Caller, name string) (*xds.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, *caller)
	text, known := s.texts[name]
	if !known || caller.Cluster == "" {
		return nil, xds.ErrUnknown
	}
	body, err := anypb.New(wrapperspb.String(text))
	return &xds.Resource{Name: name, Version: text, Body: body}, err
}

func (s *memorySource) Watch(_ *discovery.Caller, name string, notify func(string)) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{name, notify}
	s.watches[w] = true
	return func() { s.mu.Lock(); defer s.mu.Unlock(); delete(s.watches, w) }, nil
}

// put changes a text and notifies its watchers.
func (s *memorySource) put(name, text string) {
	s.mu.Lock()
	s.texts[name] = text
	var told []func(string)
	for w := range s.watches {
		if w.name == name {
			told = append(told, w.notify)
		}
	}
	s.mu.Unlock()
	for _, notify := range told {
		notify(name)
	}
}

func (s *memorySource) callers() []discovery.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}
