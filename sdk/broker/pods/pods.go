// Package pods (experimental) resolves Kubernetes object references of the SPIFFE Broker API to pods.
// Call [New], have [Pods.Run] follow the pods of a node, and give the Pods to package broker as the
// resolver of its Kubernetes references. It links no Kubernetes package.
package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

// lag is how long a reference waits for a pod that the API server may have created, and the watch has
// not brought.
const lag = 2 * time.Second

// Pod is a pod as the API server has it.
type Pod struct {
	Namespace, Name, UID, ServiceAccount, Node string
}

// String returns the namespace, name and UID.
func (p Pod) String() string { return fmt.Sprintf("pod %s/%s (%s)", p.Namespace, p.Name, p.UID) }

// Config configures [New].
type Config struct {
	// Client may list and watch pods, and get one. Required.
	Client *kubeapi.Client
	// Node is the node whose pods count. Default: all pods of the cluster, which are then all in memory.
	Node string
	// Identify returns the SPIFFE ID of a pod; an error means that it has none. Required.
	Identify func(Pod) (spiffeID string, err error)
	// Log. Default: [slog.Default].
	Log *slog.Logger
}

// Pods are the running pods of a node. It is safe for concurrent use.
type Pods struct {
	cfg  Config
	call kubeapi.Call

	mu      sync.Mutex
	byUID   map[string]*known
	byKey   map[key]*known
	listed  bool            // at least once
	away    bool            // since the last sign of the API server
	seen    map[string]bool // UIDs of a list in progress; nil: none
	changed chan struct{}   // closed at the next change
}

type key struct{ namespace, name string }

// known is a pod and the references that hold it.
type known struct {
	Pod
	watchers watchers.Set[func(error)]
}

// New returns Pods that know none until Run has listed them.
func New(cfg Config) (*Pods, error) {
	if cfg.Client == nil || cfg.Identify == nil {
		return nil, errors.New("pods: Config needs Client and Identify")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	call := kubeapi.Call{Path: "/api/v1/pods"}
	if cfg.Node != "" {
		call.Query = url.Values{"fieldSelector": {"spec.nodeName=" + cfg.Node}}
	}
	return &Pods{cfg: cfg, call: call, byUID: map[string]*known{}, byKey: map[key]*known{}, changed: make(chan struct{})}, nil
}

// Run follows the pods until ctx ends.
func (p *Pods) Run(ctx context.Context) {
	(&kubeapi.Follower{Client: p.cfg.Client, Call: p.call, Observer: observer{p}}).Run(ctx)
}

// take adds a pod. One that has another UID than the last of its name replaces that.
func (p *Pods) take(pod Pod) {
	p.mu.Lock()
	last := p.byKey[key{pod.Namespace, pod.Name}]
	if last != nil && last.UID == pod.UID {
		p.mu.Unlock()
		return
	}
	gone := p.forget(last)
	one := &known{Pod: pod}
	p.byUID[pod.UID], p.byKey[key{pod.Namespace, pod.Name}] = one, one
	p.notify()
	p.mu.Unlock()
	gone()
}

// remove forgets a pod.
func (p *Pods) remove(uid string) {
	p.mu.Lock()
	gone := p.forget(p.byUID[uid])
	p.mu.Unlock()
	gone()
}

// forget returns what ends the references to a pod, to be called without the lock.
func (p *Pods) forget(one *known) (end func()) {
	if one == nil {
		return func() {}
	}
	delete(p.byUID, one.UID)
	if at := (key{one.Namespace, one.Name}); p.byKey[at] == one {
		delete(p.byKey, at)
	}
	all := one.watchers.All()
	return func() {
		for _, ended := range all {
			ended(over(one))
		}
	}
}

// notify wakes the references that wait. The caller holds the lock.
func (p *Pods) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}
