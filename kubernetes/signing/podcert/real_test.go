//go:build e2e && linux

package podcert_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/podcert"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
)

const patience = 2 * time.Minute

// least are the rights that the package's comment names, but for that to sign.
var least = []rbacv1.PolicyRule{
	{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{requests}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"podcertificaterequests/status"}, Verbs: []string{"update"}},
	{APIGroups: []string{""}, Resources: []string{"pods", "serviceaccounts", "nodes"}, Verbs: []string{"get"}},
}

// sign is the right to sign for a signer.
func sign(name string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{name}, Verbs: []string{"sign"}}
}

// real is a real API server with a pod, and a door with the least rights.
type real struct {
	*kubetest.Cluster
	t       *testing.T
	user    string
	honest  *request
	audit   ratest.Audit
	log     logtest.Log
	results chan string
}

func newReal(t *testing.T) *real {
	r := &real{Cluster: kubetest.Start(t, kubetest.Options{}), t: t, results: make(chan string, 100)}
	r.user = r.ServiceAccount("countersign", "ra")
	r.Bind("", r.user, least...)
	r.ServiceAccount("shop", "web")
	core, ctx := r.Client().CoreV1(), t.Context()
	node, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account, err := core.ServiceAccounts("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := core.Pods("shop").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0"},
		Spec:       corev1.PodSpec{ServiceAccountName: "web", NodeName: node.Name, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.honest = honest()
	r.honest.UID, r.honest.CreationTimestamp = "", metav1.Time{}
	r.honest.Spec.PodUID, r.honest.Spec.ServiceAccountUID, r.honest.Spec.NodeUID = pod.UID, account.UID, node.UID
	return r
}

// run lets a door work until the test ends.
func (r *real) run() {
	r.t.Helper()
	engine := ratest.Engine(r.t, ra.Config{
		Policy: ratest.Policy(r.t, rule()), Audit: &r.audit, Log: r.log.Logger(), Doors: []ra.Door{signing.PodDoor(signer)},
		Authorities: []ra.Authority{{Name: "ca", Client: ratest.Certifier{CA: catest.NewCA(catest.Options{NamesFromRequest: true})}}},
	})
	r.t.Cleanup(engine.Close)
	door, err := podcert.New(podcert.Config{
		Config: signing.Config{Cluster: "home", Issuer: engine, Log: r.log.Logger(), Observe: func(e signing.Event) { r.results <- e.Result }},
		Client: r.ClientFor(r.Account("countersign", "ra")), Signers: []string{signer},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(background.Run(door.Run))
}

// create makes a request like the honest one.
func (r *real) create(name string, change func(*request)) {
	r.t.Helper()
	made := r.honest.DeepCopy()
	made.Name = name
	change(made)
	if _, err := r.Client().CertificatesV1().PodCertificateRequests("shop").Create(r.t.Context(), made, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// want waits for an outcome and demands the condition of a request.
func (r *real) want(result, name, state string) *request {
	r.t.Helper()
	select {
	case got := <-r.results:
		if got != result {
			r.t.Errorf("%s: %s, want %s\n%s", name, got, result, r.log.String())
		}
	case <-time.After(patience):
		r.t.Fatalf("%s: nothing in %s\n%s", name, patience, r.log.String())
	}
	found, err := r.Client().CertificatesV1().PodCertificateRequests("shop").Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	got := pending
	if len(found.Status.Conditions) > 0 {
		got = found.Status.Conditions[0].Type + " " + found.Status.Conditions[0].Reason
	}
	if got != state {
		r.t.Errorf("%s is %q, want %q", name, got, state)
	}
	return found
}

func TestRealAPIServerTakesEachStatus(t *testing.T) {
	r := newReal(t)
	r.Bind("", r.user, sign(signer))
	r.run()
	r.create("honest", func(made *request) {
		made.Labels, made.Annotations = map[string]string{"kept": "yes"}, map[string]string{"kept": "yes"}
	})
	if made := r.want("issued", "honest", issuedState); made.Labels["kept"] != "yes" || made.Annotations["kept"] != "yes" {
		t.Errorf("the metadata is %+v", made.ObjectMeta)
	}
	r.create("annotated", func(made *request) { asks(made, "bank.example.org") })
	r.want("denied", "annotated", badNotes)
	r.create("finished-pod", func(made *request) {
		pod, err := r.Client().CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.Phase = corev1.PodSucceeded
		if _, err := r.Client().CoreV1().Pods("shop").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	r.want("denied", "finished-pod", notOurs)
	r.create("no-pod", func(made *request) { made.Spec.PodName = "web-9" })
	r.want("pending", "no-pod", pending)
	r.create("pod-made-anew", func(made *request) { made.Spec.PodUID = types.UID("x") })
	r.want("pending", "pod-made-anew", pending) // the pod is younger than 5 minutes
}

// An account that may not sign yet: the request waits, and its certificate with it.
func TestRealRightToSignThatComesLate(t *testing.T) {
	r := newReal(t)
	r.run()
	r.create("honest", func(*request) {})
	r.log.Await(t, patience, "that the status was refused", func(text string) bool {
		return strings.Contains(text, "cannot write the certificate into the request")
	})
	if !strings.Contains(r.log.String(), "sign") {
		t.Errorf("the log does not say what is missing:\n%s", r.log.String())
	}
	r.Bind("", r.user, sign(signer))
	r.want("issued", "honest", issuedState)
	if n := strings.Count(r.audit.String(), `"event":"issued"`); n != 1 {
		t.Errorf("%d certificates", n)
	}
}
