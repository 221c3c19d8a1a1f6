package trustbundle

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	certificates "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// shortest and longest bound the pauses after a fault, and after a repair: they double
	// as long as it goes on.
	shortest, longest = time.Second, time.Minute
	// resync is when a bundle is looked at though nothing was heard: a watch can be dead.
	resync = 10 * time.Minute
	// peace is how long nobody must touch the object for repairs to be quick again.
	peace = 10 * time.Minute
)

var errNotWritten = errors.New("not written yet")

// keeper keeps one object. One goroutine runs it at a time.
type keeper struct {
	door    *Door
	bundle  Bundle
	name    string
	changed chan struct{} // the authority's roots may have
	touched chan struct{} // the object may have been

	mu   sync.Mutex
	held *pki.Bundle   // which roots of the authority it was last seen with by this run; nil: not seen
	good *pki.Bundle   // all that it had when it was last as it should be
	err  error         // why it is not
	move chan struct{} // closed when either changes; nil while nobody waits

	// Of the goroutine that runs it.
	seen     *pki.Bundle // the last roots that were not none
	wrote    string      // what this run last saw in the object, as it should be; empty: not yet
	uid      string      // of the object that is ours
	pause    time.Duration
	repaired time.Time
	repairs  int // that are not logged yet
	logged   time.Time
}

func (d *Door) newKeeper(b Bundle) *keeper {
	return &keeper{
		door: d, bundle: b, name: b.Name, err: errNotWritten,
		changed: make(chan struct{}, 1), touched: make(chan struct{}, 1),
	}
}

func (k *keeper) state() (held *pki.Bundle, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held, k.err
}

// had returns what the object had when it was last as it should be.
func (k *keeper) had() *pki.Bundle {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.good
}

func (k *keeper) set(held *pki.Bundle, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held, k.err = held, err; held == nil || err == nil {
		k.good = held
	}
	if k.move != nil {
		close(k.move)
		k.move = nil
	}
}

// moves returns what is closed at the next change of the state.
func (k *keeper) moves() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.move == nil {
		k.move = make(chan struct{})
	}
	return k.move
}

// ready returns why the object lacks roots that are known, or nil.
func (k *keeper) ready() error {
	held, err := k.state()
	roots := k.door.cfg.Roots(k.bundle.Authority)
	switch {
	case roots.Len() == 0:
		return nil
	case err != nil:
		return err
	case roots.Filter(held.Contains).Len() < roots.Len():
		return errNotWritten
	}
	return nil
}

func (k *keeper) run(ctx context.Context) {
	k.set(nil, errNotWritten)
	k.wrote, k.uid, k.pause = "", "", 0
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.watch(ctx) })
	for ctx.Err() == nil {
		repaired, err := k.keep(ctx)
		k.note(ctx, repaired, err)
		k.rest(ctx, err != nil)
	}
}

// watch hears of the object. Its content is not used: it may be old.
func (k *keeper) watch(ctx context.Context) {
	informer := certificates.NewFilteredClusterTrustBundleInformer(k.door.cfg.Client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", k.name).String()
	})
	tell := func(any) { poke(k.touched) }
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only for one that has stopped
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, _ any) { poke(k.touched) },
	})
	signing.RunInformers(ctx, k.door.cfg.Log, informer)
}

// note keeps the outcome, chooses the next pause, and logs once a minute at most.
func (k *keeper) note(ctx context.Context, repaired bool, err error) {
	if ctx.Err() != nil {
		return // the end of the run is no fault
	}
	now := time.Now()
	if repaired {
		k.repaired = now
		k.repairs++
	}
	switch {
	case err != nil || repaired:
		k.pause = min(max(2*k.pause, shortest), longest)
	case now.Sub(k.repaired) >= peace:
		k.pause = 0
	}
	if err != nil {
		held, _ := k.state()
		k.set(held, err)
	}
	if (err != nil || k.repairs > 0) && (k.logged.IsZero() || now.Sub(k.logged) >= time.Minute) {
		k.logged = now
		k.complain(err)
	}
}

func (k *keeper) complain(err error) {
	log := k.door.cfg.Log.With("cluster", k.door.cfg.Cluster, "object", k.name, "signer", k.bundle.Signer)
	if k.repairs > 0 {
		log.Warn("restored a trust bundle that somebody else changed or deleted", "times", k.repairs)
		k.repairs = 0
	}
	if err != nil {
		log.Warn("cannot publish the roots of the signer", "authority", k.bundle.Authority, "error", text.Clean(err.Error()))
	}
}

// rest waits until there is something to do: for a second at least, and for what others do to the
// object until the pause is over. A fault is met again after the pause.
func (k *keeper) rest(ctx context.Context, again bool) {
	signing.Sleep(ctx, shortest)
	var touched chan struct{} // not yet
	pause := time.NewTimer(max(0, k.pause-shortest) + rand.N(k.pause/4+1))
	defer pause.Stop()
	late := time.NewTimer(resync)
	defer late.Stop()
	for {
		select {
		case <-pause.C:
			if again {
				return
			}
			touched = k.touched
			continue
		case <-ctx.Done():
		case <-k.changed:
		case <-touched:
		case <-late.C:
		}
		return
	}
}
