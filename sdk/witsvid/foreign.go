package witsvid

import "github.com/countersign-dev/countersign/sdk/internal/tokensource"

// Foreign holds the WIT keys of federated trust domains, as their bundle endpoints publish them.
// Experimental. The zero value has none; its methods are safe for concurrent use.
type Foreign struct {
	keys tokensource.Foreign
}

// Set replaces the keys of a trust domain with a JWK set. A set without keys revokes all of them. A set
// that cannot be read is an error and changes nothing.
func (f *Foreign) Set(trustDomain string, jwks []byte) error {
	return f.keys.Set(kind, trustDomain, jwks)
}

// Keys returns the public keys of a trust domain, a JWK set that must not be modified; nil while
// they are not known.
func (f *Foreign) Keys(trustDomain string) []byte { return f.keys.Keys(trustDomain) }

// Watch calls notify after each change of the keys, until stop. notify must not block.
func (f *Foreign) Watch(notify func()) (stop func()) { return f.keys.Watch(notify) }
