package istiodtls

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// resync is when the Secret is read though nothing changed: it is not watched.
	resync = 30 * time.Second
	// signTimeout is how long the engine may keep a request waiting before it is repeated,
	// which costs it nothing.
	signTimeout = 2 * time.Minute
)

// pace bounds the pauses after a fault, and after a repair.
var pace = &owned.Rules{
	Faults: rotation.Row{First: time.Second, Most: resync}, Repairs: rotation.Row{First: time.Second, Most: 10 * time.Minute}, Peace: 20 * time.Minute,
}

// Run keeps the Secret until ctx ends, and returns when all goroutines are done. It may be called
// again after that, but not twice at once.
func (k *Keeper) Run(ctx context.Context) {
	k.loop.Run(ctx)
	if k.pairs != nil {
		_ = k.pairs.Close() // it returns nil
		k.pairs = nil
	}
}

// look brings the Secret in line with what is held. No certificate is asked for until the Secret may
// be written.
func (k *Keeper) look(ctx context.Context) error {
	found, err := owned.Find(ctx, k.cfg.Client.CoreV1().Secrets(k.cfg.Namespace).Get, Name)
	if err != nil {
		return err
	}
	step := stepFor(found)
	if err := k.loop.May(step); err != nil {
		return err
	}
	if err := k.open(found); err != nil {
		return err
	}
	select {
	case <-k.roots:
		k.pairs.Kick(k.cfg.Authority)
	default:
	}
	want, item, err := k.wants()
	if err != nil {
		return err
	}
	if found != nil {
		step.Right = has(found.Data, want)
		step.Planned = owned.Labelled(found.Labels) && lacksRecords(found.Data, want)
	}
	step.Due, step.Write = item.Version+string(want["ca.crt"]), k.write(found, want)
	if err := k.loop.Bring(ctx, step); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Fingerprint, k.status.NotAfter = item.Fingerprint, item.NotAfter
	return nil
}

func stepFor(found *corev1.Secret) (s owned.Step) {
	if found == nil {
		return s
	}
	if s.Found = &found.ObjectMeta; found.Type != corev1.SecretTypeTLS {
		s.Unfit = fmt.Errorf("it exists with the type %.64q, which cannot be changed: delete it", found.Type)
	}
	return s
}

// open makes what obtains the certificate, once in a run. It goes on with what an earlier leader left
// in the Secret.
func (k *Keeper) open(found *corev1.Secret) error {
	if k.pairs != nil {
		return nil
	}
	if err := k.recall(found); err != nil {
		k.cfg.Log.Warn("istiod's certificate", "error", err)
	}
	pairs, err := secret.New(secret.Config{
		Secrets:     []secret.Spec{{Name: Name, Kind: secret.KeyPair, Authorities: []string{k.cfg.Authority}, Identity: k.identity, TTL: k.cfg.TTL}},
		Authorities: []secret.Authority{{Name: k.cfg.Authority, Client: authority{k}, AcceptLongerTTL: new(true), Timeout: signTimeout}}, // the engine has checked that
		Storage:     storage{k}, Log: k.cfg.Log,
	})
	if err != nil {
		return err
	}
	if _, err := pairs.Watch(secret.Caller{}, Name, func(string) { k.changed.Send() }); err != nil {
		_ = pairs.Close()
		return err
	}
	k.pairs = pairs
	return nil
}

// wants returns what the Secret should have; an error if that is not known yet.
func (k *Keeper) wants() (data map[string][]byte, item *secret.Item, err error) {
	item, err = k.pairs.Peek(secret.Caller{}, Name)
	if err != nil {
		return nil, nil, err
	}
	if roots := k.cfg.Roots(k.cfg.Authority); roots.Len() > 0 {
		k.seen = roots
	}
	if k.seen.Len() == 0 {
		return nil, nil, fmt.Errorf("the roots of authority %q are not known", k.cfg.Authority)
	}
	return map[string][]byte{
		"tls.crt": item.Chain, "tls.key": item.Key, "ca.crt": k.seen.Union(k.cfg.Further).PEM(), stateKey: k.state(),
	}, item, nil
}
