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
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// resync is when a bundle is read though no event came: a watch can be dead.
const resync = 10 * time.Minute

// pace bounds the pauses after a fault, and after a repair.
var pace = &owned.Rules{
	Faults: rotation.Row{First: time.Second, Most: time.Minute}, Repairs: rotation.Row{First: time.Second, Most: time.Minute}, Peace: 10 * time.Minute,
}

// keeper keeps one object. One goroutine runs it at a time.
type keeper struct {
	door    *Door
	bundle  Bundle
	name    string
	foreign string // the trust domain, for the object of a federated one
	roots   func() (roots *pki.Bundle, current bool)
	loop    *owned.Loop
	changed owned.Notice // the authority's roots may have
	touched owned.Notice // the object may have been

	mu   sync.Mutex
	held *pki.Bundle   // which roots of the authority this run found in it last; nil: not read yet
	good *pki.Bundle   // which it had when it was last as it should be; nil: never in this run
	move chan struct{} // closed when either changes; nil while no call waits

	seen *pki.Bundle // the last roots that were not none; of the goroutine that runs it
}

// newKeeper returns that of a bundle; of its object for a trust domain, if foreign is not empty.
func (d *Door) newKeeper(b Bundle, foreign string) *keeper {
	federated := b.Federated
	if foreign != "" {
		b = federated.of(foreign, b)
	}
	k := &keeper{door: d, bundle: b, name: b.Name, foreign: foreign, changed: owned.NewNotice(), touched: owned.NewNotice()}
	k.roots = func() (*pki.Bundle, bool) { return d.cfg.Roots(b.Authority), true }
	if foreign != "" {
		k.roots = func() (*pki.Bundle, bool) { return federated.publishes(foreign) }
	}
	k.loop = &owned.Loop{
		Look: k.look, Rules: pace, Resync: resync, Changed: k.changed, Touched: k.touched, Adopt: b.Adopt, Held: d.cfg.Held,
		Log:  d.cfg.Log.With("cluster", d.cfg.Cluster, "object", k.name, "signer", b.Signer, "authority", k.authority()),
		What: "a trust bundle", Lacks: "cannot publish the roots of the signer",
	}
	return k
}

// authority names whose roots the object has, in messages.
func (k *keeper) authority() string {
	if k.foreign != "" {
		return "trust domain " + k.foreign
	}
	return k.bundle.Authority
}

func (k *keeper) state() (held, good *pki.Bundle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held, k.good
}

func (k *keeper) set(held, good *pki.Bundle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held, k.good = held, good
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
	roots, current := k.roots()
	if roots.Len() == 0 || !current {
		return nil
	}
	if err := k.loop.Err(); err != nil {
		return err
	}
	if held, _ := k.state(); roots.Filter(held.Contains).Len() < roots.Len() {
		return owned.ErrNotWritten
	}
	return nil
}

func (k *keeper) run(ctx context.Context) {
	k.set(nil, nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.watch(ctx) })
	k.loop.Run(ctx)
}

// watch receives events of the object. Their content is not used: it may be old.
func (k *keeper) watch(ctx context.Context) {
	informer := certificates.NewFilteredClusterTrustBundleInformer(k.door.cfg.Client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", k.name).String()
	})
	touch := func(any) { k.touched.Send() }
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only for one that has stopped
		AddFunc: touch, DeleteFunc: touch, UpdateFunc: func(_, _ any) { k.touched.Send() },
	})
	signing.RunInformers(ctx, k.door.cfg.Log, informer)
}
