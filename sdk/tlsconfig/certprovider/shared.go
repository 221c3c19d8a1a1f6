package certprovider

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// registry has the sources of the program, and those that providers share.
type registry struct {
	open func(config) (closer, error)

	mu     sync.Mutex
	served map[string]secret.Source
	opened map[config]*shared
}

var sources = newRegistry(openSource)

func newRegistry(open func(config) (closer, error)) *registry {
	return &registry{open: open, served: map[string]secret.Source{}, opened: map[config]*shared{}}
}

// closer is a source that a registry has opened.
type closer interface {
	secret.Source
	Close() error
}

func openSource(c config) (closer, error) {
	if c.WorkloadAPI != "" {
		return spiresecret.New(spiresecret.Config{Socket: c.WorkloadAPI, Federated: true})
	}
	return filesecret.New(filesecret.Config{CredentialFolder: c.CredentialFolder})
}

// shared is a source that the providers of one config have in common.
type shared struct {
	registry *registry
	config   config
	users    int // the registry's lock guards it

	ready  chan struct{} // closed when source or err is set
	source closer
	err    error
}

func (r *registry) serve(name string, source secret.Source) (stop func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case name == "" || source == nil:
		return nil, errors.New("certprovider: a source needs a name")
	case r.served[name] != nil:
		return nil, fmt.Errorf("certprovider: another source has the name %.256q", name)
	}
	r.served[name] = source
	return sync.OnceFunc(func() { r.end(name) }), nil
}

func (r *registry) end(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.served, name)
}

// acquire returns what returns the source of a config, and what releases it.
func (r *registry) acquire(c config) (source func(context.Context) (secret.Source, error), release func()) {
	if s := r.share(c); s != nil {
		return s.get, sync.OnceFunc(s.release)
	}
	return r.given(c.Source), func() {}
}

// given returns what returns the source that the program serves under a name: the first that is found, now
// or at a call.
func (r *registry) given(name string) func(context.Context) (secret.Source, error) {
	r.mu.Lock()
	found := r.served[name]
	r.mu.Unlock()
	return func(context.Context) (secret.Source, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if found == nil {
			found = r.served[name]
		}
		if found == nil {
			return nil, fmt.Errorf("no source has the name %.256q; call certprovider.Serve before gRPC", name)
		}
		return found, nil
	}
}

// share returns the shared source of a config until release; nil if the program has given it. It waits for
// nothing: grpc-go holds a lock over the providers of the whole program.
func (r *registry) share(c config) *shared {
	if c.Source != "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.opened[c]
	if s == nil {
		s = &shared{registry: r, config: c, ready: make(chan struct{})}
		r.opened[c] = s
		go s.open()
	}
	s.users++
	return s
}

func (s *shared) open() {
	defer close(s.ready)
	s.source, s.err = s.registry.open(s.config)
}

// get waits until the source is open: a file system may hang.
func (s *shared) get(ctx context.Context) (secret.Source, error) {
	select {
	case <-s.ready:
		return s.source, s.err
	case <-ctx.Done():
	}
	select {
	case <-s.ready:
		return s.source, s.err
	default:
		return nil, context.Cause(ctx)
	}
}

// release closes the source in the background after the last call.
func (s *shared) release() {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	delete(r.opened, s.config)
	go func() {
		if <-s.ready; s.err == nil {
			_ = s.source.Close() // it returns nil
		}
	}()
}
