package certprovider

import (
	"errors"
	"fmt"
	"sync"

	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// registry has the sources of the program, and those that providers share.
type registry struct {
	mu     sync.Mutex
	served map[string]secret.Source
	opened map[config]*shared
}

var sources = registry{served: map[string]secret.Source{}, opened: map[config]*shared{}}

// shared is a source that the providers of one config have in common.
type shared struct {
	source interface {
		secret.Source
		Close() error
	}
	users int
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

// acquire returns the source of a config, and what releases it.
func (r *registry) acquire(c config) (secret.Source, func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Source != "" {
		if source := r.served[c.Source]; source != nil {
			return source, func() {}, nil
		}
		return nil, nil, fmt.Errorf("no source has the name %.256q; call certprovider.Serve before gRPC", c.Source)
	}
	s := r.opened[c]
	if s == nil {
		s = &shared{}
		var err error
		if c.WorkloadAPI != "" {
			s.source, err = spiresecret.New(spiresecret.Config{Socket: c.WorkloadAPI, Federated: true})
		} else {
			s.source, err = filesecret.New(filesecret.Config{CredentialFolder: c.CredentialFolder})
		}
		if err != nil {
			return nil, nil, err
		}
		r.opened[c] = s
	}
	s.users++
	return s.source, sync.OnceFunc(func() { r.release(c, s) }), nil
}

func (r *registry) release(c config, s *shared) {
	r.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(r.opened, c)
	}
	r.mu.Unlock()
	if last {
		_ = s.source.Close() // it returns nil
	}
}
