//go:build e2e

package real_test

import (
	"context"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/ra"
)

// arena is a cluster for attackers. It has no kubelets, as these would ask, too.
type arena struct {
	*registrar
	node    kubernetes.Interface   // the kubelet of node one
	user    kubernetes.Interface   // may create requests
	targets map[string]*corev1.Pod // by their names
	nodes   map[string]types.UID
	pending []*certificatesv1.PodCertificateRequest // that must remain so
	stale   types.UID                               // of account web, before it was made anew
}

func newArena(t *testing.T) *arena {
	t.Helper()
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})
	a := &arena{registrar: o, targets: map[string]*corev1.Pod{}, node: o.ClientFor(o.NodeUser("one")), user: o.ClientFor(o.User("mallory"))}
	a.Bind("", "mallory", rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"podcertificaterequests"}, Verbs: []string{"create"}})
	a.nodes = map[string]types.UID{"one": a.Node("one"), "two": a.Node("two")}
	a.stale = a.replacedAccount("web")
	a.ServiceAccount("shop", "admin")
	a.ServiceAccount("bank", "web")
	a.createPods()
	return a
}

// dropPolicy deletes the binding of the admission policy, and returns when users may lie.
func (a *arena) dropPolicy() {
	a.t.Helper()
	must(a.t, a.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(a.t.Context(), guard.DefaultPolicy, metav1.DeleteOptions{}))
	request := a.CertificateRequest(a.targets["web"], signer)
	kubetest.Await(a.t, "the admission policy remains in force", func(ctx context.Context) (bool, error) {
		_, err := a.user.CertificatesV1().PodCertificateRequests("shop").Create(ctx, request, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil, err
	})
}

func (a *arena) createPods() {
	a.t.Helper()
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"web", "elsewhere", "deleted", "finished", "mirror", "plain"} {
		pods[name] = kubetest.CertificatePod("shop", name, "web", "one", signer)
	}
	pods["stranger"] = kubetest.CertificatePod("bank", "stranger", "web", "one", signer)
	pods["elsewhere"].Spec.NodeName = "two"
	pods["mirror"].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "made by a node"}
	pods["plain"].Spec.Volumes, pods["plain"].Spec.Containers[0].VolumeMounts = nil, nil
	for name, pod := range pods {
		a.targets[name] = a.CreatePod(pod)
	}
	all := a.Client().CoreV1().Pods("shop")
	a.targets["finished"].Status.Phase = corev1.PodSucceeded
	_, err := all.UpdateStatus(a.t.Context(), a.targets["finished"], metav1.UpdateOptions{})
	must(a.t, err)
	must(a.t, all.Delete(a.t.Context(), "deleted", metav1.DeleteOptions{}))
}

// replacedAccount makes an account, deletes it, makes it anew, and returns its first UID.
func (a *arena) replacedAccount(name string) types.UID {
	a.t.Helper()
	a.ServiceAccount("shop", name)
	accounts := a.Client().CoreV1().ServiceAccounts("shop")
	first, err := accounts.Get(a.t.Context(), name, metav1.GetOptions{})
	must(a.t, err)
	must(a.t, accounts.Delete(a.t.Context(), name, metav1.DeleteOptions{}))
	a.ServiceAccount("shop", name)
	return first.UID
}
