package istiodtls

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// shortest is the time between two looks at least.
	shortest = time.Second
	// look is when the Secret is looked at though nothing was heard.
	look = 30 * time.Second
	// patience is how long something must last to be logged.
	patience = 10 * time.Second
	// signTimeout is how long the engine may keep a request in line before it is repeated,
	// which costs it nothing.
	signTimeout = 2 * time.Minute
)

// pace bounds the pauses after a fault, and after a repair.
var pace = &owned.Rules{
	Faults: rotation.Row{First: time.Second, Most: look}, Repairs: rotation.Row{First: time.Second, Most: 10 * time.Minute}, Peace: 20 * time.Minute,
}

// Run keeps the Secret until ctx ends, and returns when all goroutines are done. It may be called
// again after that, but not twice at once.
func (k *Keeper) Run(ctx context.Context) {
	k.wrote, k.claim, k.pace, k.disputed, k.failing, k.logged = "", owned.Claim{}, owned.Pace{}, false, time.Time{}, time.Time{}
	k.set(owned.ErrNotWritten)
	if !k.open(ctx) {
		return
	}
	pairs, err := secret.New(secret.Config{
		Secrets:     []secret.Spec{{Name: Name, Kind: secret.KeyPair, Authorities: []string{k.cfg.Authority}, Identity: k.identity, TTL: k.cfg.TTL}},
		Authorities: []secret.Authority{{Name: k.cfg.Authority, Client: authority{k}, AcceptLongerTTL: new(true), Timeout: signTimeout}}, // the engine has checked that
		Storage:     storage{k}, Log: k.cfg.Log,
	})
	if err != nil {
		k.note(ctx, false, err)
		return
	}
	defer func() { _ = pairs.Close() }() // it returns nil
	stop, err := pairs.Watch(secret.Caller{}, Name, func(string) { poke(k.changed) })
	if err != nil {
		k.note(ctx, false, err)
		return
	}
	defer stop()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { k.listen(ctx, pairs) })
	for ctx.Err() == nil {
		repaired, err := k.keep(ctx, pairs)
		k.note(ctx, repaired, err)
		k.rest(ctx, err != nil)
	}
}

// open waits until the Secret may be written, and takes what an earlier leader left in it. It
// returns false if ctx ends first.
func (k *Keeper) open(ctx context.Context) bool {
	for ctx.Err() == nil {
		found, err := k.get(ctx)
		if err == nil {
			err = k.owned(found)
		}
		if err == nil {
			if err := k.recall(found); err != nil {
				k.cfg.Log.Warn("istiod's certificate", "error", err)
			}
			return true
		}
		k.note(ctx, false, err)
		signing.Sleep(ctx, k.pace.Wait(time.Now(), true))
	}
	return false
}

// listen handles root changes: it removes roots that no certificate needs and writes new ones.
func (k *Keeper) listen(ctx context.Context, pairs *secret.Manager) {
	for {
		select {
		case <-k.roots:
			pairs.Kick(k.cfg.Authority)
			poke(k.changed)
		case <-ctx.Done():
			return
		}
	}
}

// note keeps the outcome, chooses the next pause, and logs once a minute at most.
func (k *Keeper) note(ctx context.Context, repaired bool, err error) {
	if ctx.Err() != nil {
		return // the end of the run is no fault
	}
	k.set(err)
	now := time.Now()
	switch {
	case err != nil:
		k.pace.Failed(pace, now)
	case repaired:
		k.pace.Right()
		k.pace.Repaired(pace, now)
		k.dispute()
	default:
		k.pace.Right()
		if k.pace.Calm(pace, now) == 0 {
			k.calm()
		}
	}
	if err == nil {
		k.failing = time.Time{}
	} else if k.failing.IsZero() {
		k.failing = now
	}
	k.complain(repaired, err, now)
}

// complain logs failures that persist; the first seconds are expected to fail.
func (k *Keeper) complain(repaired bool, err error, now time.Time) {
	lasts := err != nil && now.Sub(k.failing) >= patience
	if !repaired && !lasts || !k.logged.IsZero() && now.Sub(k.logged) < time.Minute {
		return
	}
	k.logged = now
	if lasts {
		k.cfg.Log.Warn("istiod's certificate is not in its Secret", "authority", k.cfg.Authority, "error", text.Clean(err.Error()))
		return
	}
	k.cfg.Log.Warn("restored istiod's certificate, which another client changed or deleted")
}

// calm ends a dispute.
func (k *Keeper) calm() {
	if k.disputed {
		k.cfg.Log.Info("no other client writes istiod's Secret any more")
	}
	k.disputed = false
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Rival = ""
}

// dispute logs once that another client keeps writing.
func (k *Keeper) dispute() {
	if !k.pace.Disputed() {
		return
	}
	k.mu.Lock()
	k.status.Rival = k.rival
	k.mu.Unlock()
	if !k.disputed {
		k.cfg.Log.Error("another client keeps writing or deleting istiod's Secret: turn off one of the two writers", "writer", k.rival)
	}
	k.disputed = true
}

// rest waits until there is something to do: for a second at least. What is ours to change does
// not wait for what others do.
func (k *Keeper) rest(ctx context.Context, again bool) {
	signing.Sleep(ctx, shortest)
	wait := k.pace.Wait(time.Now(), true)
	if !again {
		wait = max(wait, look)
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-ctx.Done():
	case <-k.changed:
	case <-over.C:
	}
}

// wants returns what the Secret should have; an error if that is not known yet.
func (k *Keeper) wants(pairs secret.Source) (data map[string][]byte, item *secret.Item, err error) {
	item, err = pairs.Peek(secret.Caller{}, Name)
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
