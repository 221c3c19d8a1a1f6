package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/tokenreview"
)

// Reasons why there is no object.
var (
	// ErrNotFound means that the cluster has no such object, or one of a type that
	// holds no certificate.
	ErrNotFound = errors.New("not found in the cluster")
	// ErrNotSynced means that the cluster's content is not known yet.
	ErrNotSynced = errors.New("cluster not synced")
)

// Cluster is one cluster reached by one kubeconfig. It is safe for concurrent use and
// immutable, except that its objects follow the API server. While that is unreachable,
// it keeps the objects it has.
type Cluster struct {
	id       string
	local    bool
	conn     *connection
	secrets  cache.SharedIndexInformer // nil with Config.ClientsOnly
	configs  cache.SharedIndexInformer // the same
	accepted atomic.Bool               // our credential; only with Config.ClientsOnly
	reviewer *tokenreview.Reviewer

	cancel context.CancelFunc // nil before start
	wg     sync.WaitGroup
}

// newCluster sends no request yet.
func newCluster(id string, config *rest.Config, cfg Config) (*Cluster, error) {
	local := id == cfg.LocalID
	limits := cfg.Limits
	if local {
		limits = Limits{}
	}
	if cfg.ClientsOnly {
		config = rest.CopyConfig(config)
		config.QPS = -1
	}
	conn, err := connect(config, limits, cfg.Log.With("cluster", id))
	if err != nil {
		return nil, err
	}
	conn.budget.clients = cfg.ClientsOnly
	c := &Cluster{id: id, local: local, conn: conn}
	if !cfg.ClientsOnly {
		if err := c.watch(cfg.Changed); err != nil {
			return nil, err
		}
	}
	c.reviewer, err = tokenreview.New(tokenreview.Config{
		URL: conn.server(), Transport: conn.http.Transport, Audiences: cfg.Audiences, Cluster: id, ServiceAccounts: cfg.ServiceAccounts, OfPeer: cfg.ReviewsOfPeer,
	})
	return c, err
}

func (c *Cluster) watch(changed func(Event)) (err error) {
	c.secrets, err = c.conn.informer(watched{
		resource: "secrets", example: &corev1.Secret{}, trim: trimSecret,
		choose:  func(o *metav1.ListOptions) { o.FieldSelector = noOtherTypes() },
		handler: c.tells(Secret, changed),
	}, c.conn.health)
	if err != nil {
		return err
	}
	c.configs, err = c.conn.informer(watched{
		resource: "configmaps", example: &corev1.ConfigMap{}, trim: trimConfigMap,
		choose:  func(*metav1.ListOptions) {},
		handler: c.tells(ConfigMap, changed),
	}, c.conn.health)
	return err
}

// tells turns changes into events. Initial objects are not changes: the cluster's sync
// is reported once.
func (c *Cluster) tells(kind Kind, changed func(Event)) cache.ResourceEventHandler {
	tell := func(object any) {
		key, err := cache.DeletionHandlingObjectToName(object)
		if err == nil {
			changed(Event{c.id, kind, key.Namespace, key.Name})
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, first bool) {
			if !first {
				tell(object)
			}
		},
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				tell(after)
			}
		},
		DeleteFunc: tell,
	}
}

// ID returns the cluster's id.
func (c *Cluster) ID() string { return c.id }

// Local reports whether this is the cluster that holds the others' kubeconfigs.
func (c *Cluster) Local() bool { return c.local }

// Client returns a client for the API server. It follows no redirects, fails once the
// cluster is removed, and has no timeout but the context's. client-go logs to klog,
// which main must silence.
func (c *Cluster) Client() kubernetes.Interface { return c.conn.client }

// Authenticator verifies the tokens of the cluster's service accounts.
func (c *Cluster) Authenticator() authn.Authenticator { return c.reviewer }

// Synced reports whether all of the cluster's objects are known, or, with
// [Config].ClientsOnly, whether its API server has accepted our credential.
func (c *Cluster) Synced() bool {
	if c.clientOnly() {
		return c.accepted.Load()
	}
	return c.secrets.HasSynced() && c.configs.HasSynced()
}

func (c *Cluster) clientOnly() bool { return c.secrets == nil }

// Secret returns a Secret from memory, with only the data keys that certificates use.
// It never blocks. The result must not be modified. The error is or wraps [ErrNotFound]
// or [ErrNotSynced].
func (c *Cluster) Secret(namespace, name string) (*corev1.Secret, error) {
	return get[*corev1.Secret](c, c.secrets, Secret, namespace, name)
}

// ConfigMap returns a ConfigMap, only its roots, under the same rules as [Cluster.Secret].
func (c *Cluster) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return get[*corev1.ConfigMap](c, c.configs, ConfigMap, namespace, name)
}

func get[T any](c *Cluster, informer cache.SharedIndexInformer, kind Kind, namespace, name string) (found T, err error) {
	// Before the initial sync, a missing object may still arrive.
	if informer == nil || !informer.HasSynced() {
		return found, fmt.Errorf("%s %.253q/%.253q in cluster %q: %w", kind, namespace, name, c.id, ErrNotSynced)
	}
	object, _, err := informer.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	found, ok := object.(T)
	if err != nil || !ok {
		return found, fmt.Errorf("%s %.253q/%.253q in cluster %q: %w", kind, namespace, name, c.id, ErrNotFound)
	}
	return found, nil
}

// start follows the API server until stop. It calls synced when the cluster is synced, and
// exceeded when it exceeds its limits.
func (c *Cluster) start(synced func(), exceeded func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	wait := c.introduce
	if !c.clientOnly() {
		c.wg.Go(func() { run(ctx, c.secrets, c.configs) })
		wait = func(ctx context.Context) bool { return waitSynced(ctx, c.secrets, c.configs) }
	}
	c.wg.Go(func() {
		if wait(ctx) {
			synced()
			every(ctx, recheck, c.recheck)
		}
	})
	c.wg.Go(func() {
		select {
		case what := <-c.conn.budget.full:
			exceeded(what)
		case <-ctx.Done():
		}
	})
}

// stop stops all goroutines of the cluster and waits for them.
func (c *Cluster) stop() {
	if c.cancel != nil {
		c.cancel()
	}
	c.conn.close()
	c.wg.Wait()
}
