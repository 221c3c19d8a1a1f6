//go:build e2e && linux && long

package real_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
)

// A thousand pods start at once on ten nodes, with Google's quota for an Enterprise CA: the last
// waits for 143 seconds, of the 15 minutes that a request lives.
func TestRealLongThousandPodsWaitForTheQuota(t *testing.T) {
	const nodes, pods, rate = 10, 1000, 7
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{Rate: rate})
	o.ServiceAccount("shop", "web")
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	o.HollowNodes(names...)
	start := time.Now()
	for i := range pods {
		o.CreatePod(kubetest.CertificatePod("shop", fmt.Sprintf("web-%d", i), "web", names[i%nodes], signer))
	}
	created := time.Since(start)
	within(t, 15*time.Minute, "not all pods run", func() bool { return o.running() == pods })
	took := time.Since(start)
	if least := time.Second * (pods - rate) / rate; took < least {
		t.Errorf("%d certificates took %s, less than %s", pods, took, least)
	}
	requests, calls := o.requests(), o.ca.Requests()
	if len(requests) != pods || len(calls) != pods+1 { // the first call learns how much the CA backdates
		t.Errorf("%d pods took %d requests and %d calls", pods, len(requests), len(calls))
	}
	late := o.late(requests)
	t.Logf("created within %s, all run after %s, %d calls; a request was passed by %d that were made after it", created.Round(time.Second), took.Round(time.Second), len(calls), late)
	if late > 10*rate {
		t.Errorf("a request was passed by %d that were made after it", late)
	}
}

// running is how many pods of namespace shop run.
func (o *registrar) running() (n int) {
	o.t.Helper()
	all, err := o.Client().CoreV1().Pods("shop").List(o.t.Context(), metav1.ListOptions{})
	must(o.t, err)
	for _, pod := range all.Items {
		if pod.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

// late returns by how many that were made later a request was passed, at most. Kubernetes keeps
// whole seconds. All must have a certificate.
func (o *registrar) late(requests []certificatesv1.PodCertificateRequest) (most int) {
	o.t.Helper()
	made := map[string]time.Time{}
	for _, r := range requests {
		if kind, c := outcome(&r); kind != issued {
			o.t.Errorf("the request of pod %s is %q: %s: %s", r.Spec.PodName, kind, c.Reason, c.Message)
		}
		made[r.Spec.PodName] = r.CreationTimestamp.Time
	}
	var asked []time.Time
	for _, call := range o.ca.Requests() {
		asked = append(asked, made[podOf(call)])
	}
	return passed(asked)
}

// passed returns by how many that were asked for later one was passed, at most: when each was asked
// for, in the order in which they were served. Kubernetes keeps whole seconds.
func passed(asked []time.Time) (most int) {
	var before []time.Time // of those that were served before, the latest last
	for _, at := range asked {
		later, _ := slices.BinarySearchFunc(before, at.Add(2*time.Second), time.Time.Compare)
		most = max(most, len(before)-later)
		place, _ := slices.BinarySearchFunc(before, at, time.Time.Compare)
		before = slices.Insert(before, place, at)
	}
	return most
}
