package podcert

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

// lag is how much older than a request an object must be to hold the request to its UID: a kubelet
// sees a node, and we each other's clocks, a little late.
const lag = 5 * time.Minute

// verify compares a request with the pod, the service account and the node that it is about. The
// pod is always the live one. If live is set, the others are as well.
func (d *Door) verify(ctx context.Context, r *request, live bool) error {
	pod, err := lookUp(ctx, d, r, r.Spec.PodName, d.cfg.Client.CoreV1().Pods(r.Namespace).Get)
	if err != nil {
		return err
	}
	if err := checkUID(r, "pod", r.Spec.PodName, pod, r.Spec.PodUID); err != nil {
		return err
	}
	if err := checkPod(r, pod); err != nil {
		return err
	}
	account := name{r.Namespace, r.Spec.ServiceAccountName}
	if live || !d.known.has(account, r.Spec.ServiceAccountUID) {
		found, err := lookUp(ctx, d, r, account.name, d.cfg.Client.CoreV1().ServiceAccounts(r.Namespace).Get)
		if err == nil {
			err = checkUID(r, "service account", account.name, found, r.Spec.ServiceAccountUID)
		}
		if err != nil {
			return err
		}
		d.known.note(account, found.UID)
	}
	node := name{"", string(r.Spec.NodeName)}
	if live || !d.known.has(node, r.Spec.NodeUID) {
		found, err := lookUp(ctx, d, r, node.name, d.cfg.Client.CoreV1().Nodes().Get)
		if err == nil {
			err = checkUID(r, "node", node.name, found, r.Spec.NodeUID)
		}
		if err != nil {
			return err
		}
		d.known.note(node, found.UID)
	}
	return nil
}

// lookUp gets an object from the API server itself. What is not there may be on its way out, and
// leaves the request pending: Kubernetes deletes it with its pod.
func lookUp[T any](ctx context.Context, d *Door, r *request, name string, get func(context.Context, string, metav1.GetOptions) (T, error)) (found T, err error) {
	err = d.lookups.Do(ctx, r.Namespace, func(ctx context.Context) error {
		found, err = get(ctx, name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return found, &signing.PendingError{Again: signing.Spread(signing.RetryGone), Err: err}
	case err != nil:
		return found, &signing.PendingError{Again: signing.Spread(signing.RetryCall), Err: fmt.Errorf("cannot look up what the request is about: %w", err)}
	}
	return found, nil
}

// checkUID refuses a request that was wrong when it was made. If the object is younger than the
// request, or nearly so, it was made anew meanwhile: the kubelet's next request has its UID,
// and the pod must be there to make one.
func checkUID(r *request, kind, name string, found metav1.Object, want types.UID) error {
	switch {
	case found.GetUID() == want:
		return nil
	case found.GetCreationTimestamp().Add(lag).Before(r.CreationTimestamp.Time):
		return denied(reasonMismatch, "the %s %.253q has the UID %.128q, but the request names %.128q", kind, name, found.GetUID(), want)
	}
	err := fmt.Errorf("the %s %.253q was re-created: it has the UID %.128q, but the request names %.128q", kind, name, found.GetUID(), want)
	return &signing.PendingError{Again: signing.Spread(signing.RetryGone), Err: err}
}

// checkPod compares the request with what never changes about its pod.
func checkPod(r *request, pod *corev1.Pod) error {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case mirror:
		return denied(reasonPod, "the pod %.253q is a mirror pod: a static pod has no service account that could be verified", pod.Name)
	case pod.Spec.ServiceAccountName != r.Spec.ServiceAccountName:
		return denied(reasonMismatch, "the pod %.253q runs as the service account %.253q, but the request names %.253q", pod.Name, pod.Spec.ServiceAccountName, r.Spec.ServiceAccountName)
	case pod.Spec.NodeName == "":
		return &signing.PendingError{Again: signing.Spread(signing.RetryCall), Err: fmt.Errorf("the pod %.253q is not bound to a node yet", pod.Name)}
	case pod.Spec.NodeName != string(r.Spec.NodeName):
		return denied(reasonMismatch, "the pod %.253q is on the node %.253q, but the request names %.253q", pod.Name, pod.Spec.NodeName, r.Spec.NodeName)
	case over && pod.DeletionTimestamp != nil:
		return &signing.PendingError{Again: signing.Spread(signing.RetryGone), Err: fmt.Errorf("the pod %.253q is finished and about to go", pod.Name)}
	case over:
		return denied(reasonPod, "the pod %.253q is finished: its phase is %s", pod.Name, pod.Status.Phase)
	}
	return nil
}
