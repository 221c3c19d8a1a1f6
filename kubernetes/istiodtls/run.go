package istiodtls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// shortest and longest bound the pauses after a repair: they double as long as it goes
	// on. Those after a fault end with look.
	shortest, longest = time.Second, 10 * time.Minute
	// look is when the Secret is looked at though nothing was heard.
	look = 30 * time.Second
	// peace is how long nobody must touch the Secret for repairs to be quick again.
	peace = 2 * longest
	// patience is how long something must last to be logged.
	patience = 10 * time.Second
	// quarrel is how many repairs without peace are another writer's doing.
	quarrel = 5
	// signTimeout is how long the engine may keep a request in line before it is repeated,
	// which costs it nothing.
	signTimeout = 2 * time.Minute
)

var errNotWritten = errors.New("not written yet")

// Run keeps the Secret until ctx ends, and returns when all goroutines are done. It may be called
// again after that, but not twice at once.
func (k *Keeper) Run(ctx context.Context) {
	k.wrote, k.uid, k.pause, k.repairs, k.failing, k.logged = "", "", 0, 0, time.Time{}, time.Time{}
	k.set(errNotWritten)
	if !k.open(ctx) {
		return
	}
	pairs, err := secret.New(secret.Config{
		Secrets:     []secret.Spec{{Name: Name, Kind: secret.KeyPair, Authorities: []string{k.cfg.Authority}, Identity: k.identity, TTL: k.cfg.TTL}},
		Authorities: []secret.Authority{{Name: k.cfg.Authority, Client: authority{k}, AcceptLongerTTL: true, Timeout: signTimeout}}, // the engine has checked that
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
		signing.Sleep(ctx, k.pause)
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
	case repaired:
		k.repaired = now
		k.repairs++
		k.pause = min(max(2*k.pause, shortest), longest)
	case err != nil:
		k.pause = min(max(2*k.pause, shortest), max(look, k.pause))
	case now.Sub(k.repaired) >= peace:
		k.calm()
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
	k.cfg.Log.Warn("restored istiod's certificate, which somebody else changed or deleted")
}

// calm makes repairs quick again.
func (k *Keeper) calm() {
	k.pause = 0
	if k.repairs >= quarrel {
		k.cfg.Log.Info("nobody else writes istiod's Secret any more")
	}
	k.repairs = 0
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Rival = ""
}

// dispute says once that somebody keeps writing.
func (k *Keeper) dispute(rival string) {
	k.mu.Lock()
	k.status.Rival = rival
	k.mu.Unlock()
	if k.repairs == quarrel-1 {
		k.cfg.Log.Error("somebody else keeps writing or deleting istiod's Secret: turn off one of the two writers", "writer", rival)
	}
}

// rest waits until there is something to do: for a second at least. What is ours to change does
// not wait for what others do.
func (k *Keeper) rest(ctx context.Context, again bool) {
	signing.Sleep(ctx, shortest)
	wait := max(k.pause, look)
	if again {
		wait = k.pause
	}
	over := time.NewTimer(max(0, wait-shortest) + rand.N(k.pause/4+1))
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
