package main

import (
	"context"
	"strconv"
	"sync"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// rotating is a source of one key pair and, by the name ROOTCA, its root, which
// watchers hold as they hold one of secret.Manager.
type rotating struct {
	authority *catest.CA
	root      *secret.Item

	mu       sync.Mutex
	item     *secret.Item
	version  int
	watchers map[*watcher]struct{}
}

type watcher struct {
	name   string
	notify func(string)
}

func newRotating() (*rotating, error) {
	r := &rotating{authority: catest.NewCA(catest.Options{Intermediates: 1}), watchers: map[*watcher]struct{}{}}
	r.root = &secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: "1", Roots: r.authority.Bundle().PEM()}
	return r, r.rotate()
}

func (r *rotating) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	if name == r.root.Name {
		return r.root, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.item, nil
}

func (r *rotating) Watch(_ secret.Caller, name string, notify func(string)) (func(), error) {
	if name == r.root.Name {
		return func() {}, nil // it never changes
	}
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

// rotate makes the next version and notifies the watchers.
func (r *rotating) rotate() error {
	chain, key, err := r.issue()
	if err != nil {
		return err
	}
	for _, w := range r.next(chain, key) {
		w.notify(w.name)
	}
	return nil
}

func (r *rotating) issue() (chain, key []byte, err error) {
	id, err := pki.NewIdentity("spiffe://cluster.local/ns/default/sa/web", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	signer, err := pki.GenerateKey("")
	if err != nil {
		return nil, nil, err
	}
	csr, err := pki.CreateCSR(signer, id)
	if err != nil {
		return nil, nil, err
	}
	reply, err := r.authority.CSRSign(context.Background(), ca.SignRequest{CSR: csr})
	if err != nil {
		return nil, nil, err
	}
	key, err = pki.EncodeKey(signer)
	return reply.Chain, key, err
}

func (r *rotating) next(chain, key []byte) []*watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.item = &secret.Item{Name: "default", Kind: secret.KeyPair, Version: strconv.Itoa(r.version), Chain: chain, Key: key}
	all := make([]*watcher, 0, len(r.watchers))
	for w := range r.watchers {
		all = append(all, w)
	}
	return all
}
