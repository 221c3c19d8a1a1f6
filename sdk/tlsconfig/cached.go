package tlsconfig

import (
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// cached is a secret in the form that TLS needs, parsed once for each version.
type cached[T any] struct {
	source secret.Source
	caller secret.Caller
	name   string
	kind   secret.Kind
	parse  func(*secret.Item) (*T, error)

	last atomic.Pointer[form[T]]
	mu   sync.Mutex // held while a new version is parsed
}

type form[T any] struct {
	item  *secret.Item
	value *T
	since time.Time // when it replaced another version; zero: it is the first
}

// of reports whether the form was made from that item's version.
func (f *form[T]) of(item *secret.Item) bool {
	return f != nil && (f.item == item || f.item.Version == item.Version && item.Version != "")
}

// get returns the current secret and allocates nothing if that version was seen before.
// The error is an [*Error].
func (h *cached[T]) get() (*T, error) {
	f, err := h.now()
	if err != nil {
		return nil, err
	}
	return f.value, nil
}

// version returns the current version, or "", and when it replaced another.
func (h *cached[T]) version() (version string, since time.Time) {
	f, err := h.now()
	if err != nil {
		return "", time.Time{}
	}
	return f.item.Version, f.since
}

func (h *cached[T]) now() (*form[T], error) {
	last := h.last.Load()
	item, err := h.source.Peek(h.caller, h.name)
	switch {
	case err != nil:
		return nil, missing(h.name, h.kind, err, last.seen())
	case last.of(item):
		return last, nil
	}
	return h.renew()
}

// renew peeks again under the lock, so that concurrent calls cannot restore an older
// version.
func (h *cached[T]) renew() (*form[T], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last.Load()
	item, err := h.source.Peek(h.caller, h.name)
	switch {
	case err != nil:
		return nil, missing(h.name, h.kind, err, last.seen())
	case last.of(item):
		return last, nil
	case item.Kind != h.kind:
		return nil, malformed(h.name, h.kind, fmt.Errorf("it is a %s", item.Kind))
	}
	value, err := h.parse(item)
	if err != nil {
		return nil, err
	}
	next := &form[T]{item: item, value: value}
	if last != nil {
		next.since = time.Now()
	}
	h.last.Store(next)
	return next, nil
}

// seen returns the item of the form, or nil.
func (f *form[T]) seen() *secret.Item {
	if f == nil {
		return nil
	}
	return f.item
}

// keyPair is the certificate presented to peers.
type keyPair = cached[tls.Certificate]

func newKeyPair(o Options) *keyPair {
	return &keyPair{source: o.Source, caller: o.Caller, name: o.Certificate, kind: secret.KeyPair, parse: Certificate}
}

// Certificate returns a key pair as crypto/tls takes it, for programs that hold items themselves.
// Leaf is set. It returns an [*Error] if the item is not a key pair, or its key is not that of its
// certificate. The caller owns the result.
func Certificate(item *secret.Item) (*tls.Certificate, error) {
	if item.Kind != secret.KeyPair {
		return nil, malformed(item.Name, secret.KeyPair, fmt.Errorf("it is a %s", item.Kind))
	}
	chain, err := pki.ParseCertificates(item.Chain)
	if err != nil {
		return nil, malformed(item.Name, secret.KeyPair, err)
	}
	key, err := item.PrivateKey()
	if err != nil {
		return nil, malformed(item.Name, secret.KeyPair, err)
	}
	if !pki.SameKey(key.Public(), chain[0].PublicKey) {
		return nil, malformed(item.Name, secret.KeyPair, fmt.Errorf("its key is not that of its certificate (serial %s)", item.Serial))
	}
	cert := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert, nil
}
