package trustbundle

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	certificates "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// shortest is the time between two looks at least.
	shortest = time.Second
	// resync is when a bundle is looked at though nothing was heard: a watch can be dead.
	resync = 10 * time.Minute
)

// pace bounds the pauses after a fault, and after a repair.
var pace = &owned.Rules{
	Faults: rotation.Row{First: time.Second, Most: time.Minute}, Repairs: rotation.Row{First: time.Second, Most: time.Minute}, Peace: 10 * time.Minute,
}

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
	seen    *pki.Bundle // the last roots that were not none
	wrote   string      // what this run last saw in the object, as it should be; empty: not yet
	claim   owned.Claim
	pace    owned.Pace
	repairs int // that are not logged yet
	logged  time.Time
}

func (d *Door) newKeeper(b Bundle) *keeper {
	return &keeper{
		door: d, bundle: b, name: b.Name, err: owned.ErrNotWritten,
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
		return owned.ErrNotWritten
	}
	return nil
}

func (k *keeper) run(ctx context.Context) {
	k.set(nil, owned.ErrNotWritten)
	k.wrote, k.claim, k.pace = "", owned.Claim{}, owned.Pace{}
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

// note keeps the outcome, which sets the next pause, and logs once a minute at most.
func (k *keeper) note(ctx context.Context, repaired bool, err error) {
	if ctx.Err() != nil {
		return // the end of the run is no fault
	}
	now := time.Now()
	switch {
	case err != nil:
		k.pace.Failed(pace, now)
	case repaired:
		k.repairs++
		k.pace.Right()
		k.pace.Repaired(pace, now)
	default:
		k.pace.Right()
		k.pace.Calm(pace, now)
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
		log.Warn("restored a trust bundle that another client changed or deleted", "times", k.repairs)
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
	pause := time.NewTimer(k.pace.Wait(time.Now(), true))
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
