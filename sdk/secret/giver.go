package secret

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Giver is a [ca.Client] for an authority that makes the keys, too, and sends each
// successor of its own accord, as a SPIFFE Workload API does. The Manager calls Give
// instead of CSRSign: at first, after each [Manager.Kick], which means that there is another
// key pair, and when the one it holds is overdue. A Giver is safe for concurrent use.
type Giver interface {
	ca.Client
	// Give returns the newest key pair for the secret name, and the roots (PEM) to verify
	// it with. Its RenewAt is when it is overdue: only from then on is it a failure that
	// there is no other. Give waits until the authority has answered once. An error is one
	// of package ca; beside a key pair, it is why no other may come.
	Give(ctx context.Context, name string) (pair *Item, roots []byte, err error)
}

// gives reports whether the authority is a [Giver].
func (a *authority) gives() bool {
	_, gives := a.settings().Client.(Giver)
	return gives
}

// given is what a Giver returned.
type given struct {
	pair  *Item
	roots []byte
	why   error // no other may come
}

// take takes a key pair that the authority made, and verifies it as a reply. If there is no
// other than the held one, that is a failure only once another is needed.
func (a *attempt) take(ctx context.Context, giver Giver) error {
	asked := time.Now()
	got, err := a.newest(ctx, giver)
	if err != nil && a.onlyLast {
		return nil // the authority says when there is another
	}
	if err != nil {
		return fmt.Errorf("authority %q: %w", a.by.Name, err)
	}
	key, err := got.pair.PrivateKey()
	if err != nil {
		return &pki.CheckError{Check: "key", Detail: err.Error()}
	}
	a.order, a.overdue = &order{key: key}, got.pair.RenewAt
	a.from, a.seen = text.Clean(got.pair.Signer), a.by.bundle.Load()
	reply := ca.Certificate{Chain: got.pair.Chain, Roots: got.roots}
	if a.chain, err = a.by.verify(ctx, a, reply, asked); err != nil {
		a.order = nil // there is nothing to send again
		return err
	}
	a.item, err = a.newItem(a.by.now())
	return err
}

// newest asks for the newest key pair, and refuses what is no successor of the held one.
func (a *attempt) newest(ctx context.Context, giver Giver) (given, error) {
	got, err := call.Do(ctx, a.conf.Timeout, a.turn, func(ctx context.Context) (g given, err error) {
		g.pair, g.roots, g.why = giver.Give(ctx, a.spec.Name)
		if g.pair == nil {
			return g, g.why
		}
		return g, nil
	})
	switch {
	case err != nil:
		return given{}, err
	case got.pair == nil:
		return given{}, ca.Errorf(ca.Unavailable, "it has sent no key pair")
	case a.held == nil:
		return got, nil
	case got.pair.Fingerprint == pki.Fingerprint(a.held.Leaf):
		return given{}, noSuccessor(got.why, "it has sent no successor yet")
	case !a.by.now().Before(got.pair.RenewAt):
		return given{}, noSuccessor(got.why, "what it has sent last is overdue itself")
	}
	return got, nil
}

func noSuccessor(why error, otherwise string) error {
	if why != nil {
		return why
	}
	return ca.Errorf(ca.Unavailable, "%s", otherwise)
}

// bringForward has a Giver's key pair taken soon if it may be another, as its authority says.
func (l *leaf) bringForward(now time.Time) {
	if !l.kicked || l.flight != nil || l.next != nil {
		return
	}
	l.kicked = false
	if l.authorities[0].gives() {
		l.rotation.BringForward(now)
	}
}
