package main

import (
	"crypto/rand"
	"encoding/pem"
	"strconv"
	"sync"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Sizes in DER of a P-256 key, and of a leaf with an intermediate.
const keySize, leafSize, intermediateSize = 138, 560, 480

// rotating is a source of one secret, whatever the name, that watchers hold as
// they hold one of secret.Manager. Its content is noise of the right size.
type rotating struct {
	mu       sync.Mutex
	item     *secret.Item
	version  int
	watchers map[*watcher]struct{}
}

type watcher struct {
	name   string
	notify func(string)
}

func newRotating() *rotating {
	r := &rotating{watchers: map[*watcher]struct{}{}}
	r.rotate()
	return r
}

func (r *rotating) Peek(secret.Caller, string) (*secret.Item, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.item, nil
}

func (r *rotating) Watch(_ secret.Caller, name string, notify func(string)) (func(), error) {
	w := &watcher{name, notify}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[w] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, w)
	}, nil
}

// rotate makes the next version and tells the watchers.
func (r *rotating) rotate() {
	for _, w := range r.next() {
		w.notify(w.name)
	}
}

func (r *rotating) next() []*watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.item = &secret.Item{
		Name: "default", Kind: secret.KeyPair, Version: strconv.Itoa(r.version),
		Chain: append(noise("CERTIFICATE", leafSize), noise("CERTIFICATE", intermediateSize)...),
		Key:   noise("PRIVATE KEY", keySize),
	}
	all := make([]*watcher, 0, len(r.watchers))
	for w := range r.watchers {
		all = append(all, w)
	}
	return all
}

func noise(blockType string, size int) []byte {
	body := make([]byte, size)
	_, _ = rand.Read(body) // never fails
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: body})
}
