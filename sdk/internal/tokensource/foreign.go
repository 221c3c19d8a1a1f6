package tokensource

import (
	"sync"

	"github.com/countersign-dev/countersign/internal/watchers"
)

// Foreign holds the keys of federated trust domains. The zero value has none; its methods are safe
// for concurrent use.
type Foreign struct {
	mu       sync.Mutex
	held     map[string]*Published // by trust domain
	watchers watchers.Set[func()]
}

// Set replaces the keys of a trust domain with a JWK set, as ReadBundle reads it. An error changes nothing.
func (f *Foreign) Set(kind Kind, trustDomain string, jwks []byte) error {
	next, err := kind.ReadBundle(jwks)
	if err != nil {
		return err
	}
	for _, notify := range f.put(trustDomain, next) {
		notify()
	}
	return nil
}

// put returns the watchers to notify.
func (f *Foreign) put(trustDomain string, next *Published) (notify []func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.held[trustDomain]; was != nil && string(was.JWKS) == string(next.JWKS) {
		return nil
	}
	if f.held == nil {
		f.held = map[string]*Published{}
	}
	f.held[trustDomain] = next
	return f.watchers.All()
}

// Of returns the keys of a trust domain, which must not be modified; nil while they are not known.
func (f *Foreign) Of(trustDomain string) *Published {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[trustDomain]
}

// Keys returns those of Of as a JWK set.
func (f *Foreign) Keys(trustDomain string) []byte {
	if p := f.Of(trustDomain); p != nil {
		return p.JWKS
	}
	return nil
}

// Watch calls notify after each change, until stop. notify must not block.
func (f *Foreign) Watch(notify func()) (stop func()) { return f.watchers.Add(notify) }
