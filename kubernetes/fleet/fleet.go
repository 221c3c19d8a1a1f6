package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
)

const kubeconfigs = "istio/multiCluster=true"

// Fleet tracks the clusters. It is safe for concurrent use.
type Fleet struct {
	cfg     Config
	local   *Cluster
	secrets cache.SharedIndexInformer // those with kubeconfigs; nil with Config.FolderOnly
	health  *health                   // of secrets

	// Run's goroutine alone uses the fields below.
	members  map[string]*member
	ofFolder []claim         // the folder's content when last readable
	refused  map[string]bool // claims already reported

	started atomic.Bool // everything known at the start was ready

	signals chan func() // work for Run's goroutine
	look    chan struct{}
	done    chan struct{}  // Run has ended, or is about to
	ending  sync.WaitGroup // clusters that are being stopped

	mu      sync.RWMutex
	serving map[string]*Cluster
	status  map[string]Status
	folder  string    // why it cannot be read
	known   time.Time // when the first pass was done
}

// New checks the settings. It sends nothing before [Fleet.Run].
func New(cfg Config) (*Fleet, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("clusters: %w", err)
	}
	local, err := newCluster(cfg.LocalID, cfg.Local, cfg)
	if err != nil {
		return nil, fmt.Errorf("the local cluster %q: %w", cfg.LocalID, err)
	}
	f := &Fleet{
		cfg: cfg, local: local, health: newHealth(local.conn.clean, cfg.Log.With("cluster", cfg.LocalID, "namespace", cfg.Namespace)),
		members: map[string]*member{}, refused: map[string]bool{},
		signals: make(chan func()), look: make(chan struct{}, 1), done: make(chan struct{}),
		serving: map[string]*Cluster{cfg.LocalID: local}, status: map[string]Status{},
	}
	if cfg.FolderOnly {
		return f, nil
	}
	f.secrets, err = local.conn.informer(watched{
		resource: "secrets", namespace: cfg.Namespace, example: &corev1.Secret{}, trim: trimKubeconfigs,
		choose: func(o *metav1.ListOptions) { o.LabelSelector = kubeconfigs },
		handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.lookAgain() }, UpdateFunc: func(_, _ any) { f.lookAgain() }, DeleteFunc: func(any) { f.lookAgain() },
		},
	}, f.health)
	return f, err
}

// Run follows the clusters until ctx ends and all their goroutines are done. It may be
// called once.
func (f *Fleet) Run(ctx context.Context) {
	defer f.ending.Wait()
	defer f.end(f.local)
	f.local.start(func() { f.signal(f.localSynced) }, func(error) {}) // it has no limits
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.secrets == nil {
		f.lookAgain()
	} else {
		wg.Go(func() { run(ctx, f.secrets) })
		wg.Go(func() {
			if waitSynced(ctx, f.secrets) {
				f.lookAgain()
			}
		})
	}
	changed, closeFolder := f.watchFolder()
	defer closeFolder()
	f.loop(ctx, changed)
	close(f.done)
	for _, m := range f.members {
		f.remove(m)
	}
}

func (f *Fleet) loop(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-f.signals:
			do()
		case <-f.look:
			f.reconcile()
		case <-changed:
			f.reconcile()
		}
	}
}

// signal queues work for Run's goroutine.
func (f *Fleet) signal(do func()) {
	select {
	case f.signals <- do:
	case <-f.done:
	}
}

func (f *Fleet) lookAgain() {
	select {
	case f.look <- struct{}{}:
	default: // already pending
	}
}

func (f *Fleet) watchFolder() (changed <-chan struct{}, end func()) {
	if f.cfg.Folder == "" {
		return nil, func() {}
	}
	watcher := filewatch.New(filewatch.Options{Log: f.cfg.Log}, f.cfg.Folder+string(os.PathSeparator))
	return watcher.C, watcher.Close
}

func (f *Fleet) localSynced() {
	f.cfg.Log.Info("local cluster synced", "cluster", f.cfg.LocalID)
	f.cfg.Changed(Event{Cluster: f.cfg.LocalID})
}

// reconcile updates the members from the current claims. It waits for the Secrets:
// otherwise a file could take an id that a Secret holds.
func (f *Fleet) reconcile() {
	if f.secrets != nil && !f.secrets.HasSynced() {
		return
	}
	claims := f.claims()
	byID := map[string][]claim{}
	for _, c := range claims {
		byID[c.id] = append(byID[c.id], c)
	}
	for id, m := range f.members {
		if len(byID[id]) == 0 {
			f.remove(m)
		}
	}
	for id, claimed := range byID {
		if id == f.cfg.LocalID {
			continue
		}
		f.settle(id, claimed)
	}
	f.show(byID[f.cfg.LocalID])
	f.tellRefused(byID)
}

// settle gives an id to the claim that holds it, or else to the first.
func (f *Fleet) settle(id string, claimed []claim) {
	m := f.members[id]
	if m == nil {
		m = &member{id: id}
		f.members[id] = m
	}
	holds := max(0, slices.IndexFunc(claimed, func(c claim) bool { return c.source == m.source }))
	m.refused = nil
	for i, c := range claimed {
		if i != holds {
			m.refused = append(m.refused, c.source)
		}
	}
	f.take(m, claimed[holds])
}

// claims returns the claims in Secrets, then those in the folder.
func (f *Fleet) claims() []claim {
	if f.secrets == nil {
		return f.folderClaims()
	}
	var secrets []*corev1.Secret
	for _, object := range f.secrets.GetStore().List() {
		if s, ok := object.(*corev1.Secret); ok {
			secrets = append(secrets, s)
		}
	}
	return append(claimsOf(secrets), f.folderClaims()...)
}

// tellRefused reports each claim for an id already held, once.
func (f *Fleet) tellRefused(byID map[string][]claim) {
	refused := map[string]bool{}
	for id, claimed := range byID {
		for _, c := range claimed {
			holder := "the local cluster"
			if m := f.members[id]; m != nil {
				holder = m.source
			}
			if holder == c.source {
				continue
			}
			key := id + "\x00" + c.source
			if refused[key] = true; !f.refused[key] {
				f.cfg.Log.Warn("kubeconfig rejected: duplicate cluster ID", "cluster", id, "source", c.source, "holder", holder)
			}
		}
	}
	f.refused = refused
}

// publish makes a member's serving cluster available and sends an event.
func (f *Fleet) publish(m *member) {
	f.mu.Lock()
	if f.serving[m.id] = m.serving; m.serving == nil {
		delete(f.serving, m.id)
	}
	f.mu.Unlock()
	f.showMember(m)
	f.cfg.Changed(Event{Cluster: m.id})
}

// end stops a cluster in the background; stopping may take a moment.
func (f *Fleet) end(c *Cluster) { f.ending.Go(c.stop) }

// Local returns the local cluster.
func (f *Fleet) Local() *Cluster { return f.local }

// Cluster returns the cluster that serves an id; there is none for the empty id.
func (f *Fleet) Cluster(id string) (*Cluster, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c, known := f.serving[id]
	return c, known
}

// Known reports whether there is a cluster of that id, be it that its kubeconfig is bad or that
// it was given up.
func (f *Fleet) Known(id string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	_, claimed := f.status[id]
	return claimed || id == f.cfg.LocalID
}

// Listed reports whether the kubeconfigs of all remotes have been read once. Before that, [Fleet.Status]
// lacks clusters.
func (f *Fleet) Listed() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return !f.known.IsZero()
}

// Ready returns nil once the local cluster is synced and each remote known at the start
// is synced, given up or [Config].SyncWait late; else what it is waiting for.
func (f *Fleet) Ready() error {
	if !f.local.Synced() {
		return fmt.Errorf("the local cluster %q is not synced: %s", f.cfg.LocalID, notSynced(f.local))
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.known.IsZero() {
		if fault := f.health.fault(); fault != "" {
			return fmt.Errorf("the kubeconfigs in namespace %q are not known: %s", f.cfg.Namespace, fault)
		}
		return errors.New("the kubeconfigs of other clusters are not known yet")
	}
	if f.started.Load() || time.Since(f.known) >= f.cfg.SyncWait {
		return nil
	}
	for id, c := range f.serving {
		if !c.Synced() {
			return fmt.Errorf("the cluster %q is not synced: %s", id, notSynced(c))
		}
	}
	f.started.Store(true) // clusters added later do not affect readiness
	return nil
}
