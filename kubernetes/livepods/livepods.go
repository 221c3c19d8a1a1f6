// Package livepods answers what a door asks about pods ([istioca.Pods]): whether one is live,
// and whether a service account has one on a node. Call [New].
//
// Each answer comes from the API server of the pod's own cluster, and nothing is kept: a no
// is about what is there now, and so is a yes, whatever was deleted or rescheduled a moment
// ago. It costs one call each. 32 calls of a cluster are under way at once, half of them for
// one namespace or node; a cluster that hangs delays its own callers alone. There is no
// goroutine.
//
// Rights: get and list pods in all namespaces.
package livepods

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// page is how many pods one answer has. A node has some hundred.
const page = 500

// Clients returns the client of a cluster, or false if it is not connected now.
type Clients func(cluster string) (kubernetes.Interface, bool)

// Pods asks API servers. It is safe for concurrent use.
type Pods struct {
	clients Clients

	mu    sync.Mutex
	slots map[string]*signing.Slots // by cluster, of which there are few
}

var _ istioca.Pods = (*Pods)(nil)

// New returns Pods. It asks nothing.
func New(clients Clients) *Pods {
	return &Pods{clients: clients, slots: map[string]*signing.Slots{}}
}

// Alive implements [istioca.Pods].
func (p *Pods) Alive(ctx context.Context, of istioca.Pod) (node string, err error) {
	if of.Name == "" || of.UID == "" {
		return "", fmt.Errorf("%w: it has no name or no UID", istioca.ErrNoPod)
	}
	var found *corev1.Pod
	err = p.ask(ctx, of.Account, "namespace "+of.Namespace, func(ctx context.Context, client kubernetes.Interface) (err error) {
		found, err = client.CoreV1().Pods(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%w: %.253q is not there", istioca.ErrNoPod, of.Name)
	case err != nil:
		return "", err
	case string(found.UID) != of.UID:
		return "", fmt.Errorf("%w: %.253q has the UID %.128q, not %.128q", istioca.ErrNoPod, of.Name, found.UID, of.UID)
	case !isLive(found, of.Account):
		return "", fmt.Errorf("%w: %.253q has finished, is bound to no node, or runs as another service account", istioca.ErrNoPod, of.Name)
	}
	return found.Spec.NodeName, nil
}

// Runs implements [istioca.Pods].
func (p *Pods) Runs(ctx context.Context, account istioca.Account, node string) error {
	if node == "" || account.ServiceAccount == "" {
		return fmt.Errorf("%w: no node or no service account is named", istioca.ErrNoPod)
	}
	var found *corev1.PodList
	err := p.ask(ctx, account, "node "+node, func(ctx context.Context, client kubernetes.Interface) (err error) {
		found, err = client.CoreV1().Pods(account.Namespace).List(ctx, metav1.ListOptions{FieldSelector: onNode(account, node), Limit: page})
		return err
	})
	if err != nil {
		return err
	}
	for i := range found.Items {
		// The server's choice is looked at again.
		if pod := &found.Items[i]; isLive(pod, account) && pod.Spec.NodeName == node {
			return nil
		}
	}
	if found.Continue != "" {
		return errors.New("the API server has more pods than it chose from")
	}
	return istioca.ErrNoPod
}

func onNode(account istioca.Account, node string) string {
	return fields.AndSelectors(
		fields.OneTermEqualSelector("spec.nodeName", node),
		fields.OneTermEqualSelector("spec.serviceAccountName", account.ServiceAccount),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	).String()
}

// isLive reports whether a pod runs as the service account on some node. A mirror pod names
// none, and any node may make one: it must not pass for a pod of "default".
func isLive(pod *corev1.Pod, account istioca.Account) bool {
	return pod.Namespace == account.Namespace && pod.Spec.ServiceAccountName == account.ServiceAccount && account.ServiceAccount != "" &&
		pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// ask calls a cluster's API server within the limits. A cluster that is not connected cannot
// tell.
func (p *Pods) ask(ctx context.Context, of istioca.Account, owner string, call func(context.Context, kubernetes.Interface) error) error {
	client, connected := p.clients(of.Cluster)
	if !connected {
		return fmt.Errorf("the cluster %.253q is not connected", of.Cluster)
	}
	return p.slotsOf(of.Cluster).Do(ctx, owner, func(ctx context.Context) error { return call(ctx, client) })
}

func (p *Pods) slotsOf(cluster string) *signing.Slots {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slots[cluster] == nil {
		p.slots[cluster] = signing.NewSlots()
	}
	return p.slots[cluster]
}
