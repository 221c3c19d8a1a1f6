package e2e

import (
	"crypto/rand"
	"sync"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	service "github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/hub"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// shelf has secrets that every caller may have.
type shelf struct {
	hub *hub.Hub[string]

	mu   sync.Mutex
	held map[string]*xds.Resource
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{hub: hub.New[string](hub.Config{}), held: map[string]*xds.Resource{}}
	t.Cleanup(s.hub.Close)
	return s
}

func (s *shelf) Peek(_ *service.Caller, name string) (*xds.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.held[name]; held != nil {
		return held, nil
	}
	return nil, xds.ErrUnknown
}

func (s *shelf) Watch(_ *service.Caller, name string, notify func(string)) (stop func(), err error) {
	return s.hub.Watch(name, func() { notify(name) }), nil
}

// put changes a secret and tells who watches it.
func (s *shelf) put(t *testing.T, secret *tlsv3.Secret) {
	t.Helper()
	body, err := anypb.New(secret)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.held[secret.Name] = &xds.Resource{Name: secret.Name, Version: rand.Text(), Body: body}
	s.mu.Unlock()
	s.hub.Changed(secret.Name)
}
