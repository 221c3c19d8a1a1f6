//go:build e2e

package real_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// With Google's quota for an Enterprise CA, 7 certificates a second.
func TestRealRequestsWaitForTheQuotaInOrder(t *testing.T) {
	t.Parallel()
	const many, deleted, rate = 200, 20, 7
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{Rate: rate})
	o.ServiceAccount("shop", "web")
	o.Node("one")
	var all []*certificatesv1.PodCertificateRequest
	for i := range many { // before the clock runs: the quota must be what they wait for, and not the machine
		pod := o.CreatePod(kubetest.CertificatePod("shop", fmt.Sprintf("web-%d", i), "web", "one", signer))
		all = append(all, o.CertificateRequest(pod, signer))
	}
	o.warmUp()
	before, kubelet := len(o.ca.Requests()), o.ClientFor(o.NodeUser("one"))
	start, tick := time.Now(), time.NewTicker(20*time.Millisecond) // over seconds, which Kubernetes keeps
	defer tick.Stop()
	for i, r := range all {
		<-tick.C
		all[i] = o.send(kubelet, r)
	}
	left, gone := all[:many-deleted], all[many-deleted:]
	for _, r := range gone {
		must(t, o.Client().CertificatesV1().PodCertificateRequests("shop").Delete(t.Context(), r.Name, metav1.DeleteOptions{}))
	}
	early := o.ca.Requests()[before:] // on a slow machine, some that are deleted have had their turn
	o.awaitIssued(left...)
	if took, least := time.Since(start), time.Second*(many-deleted-rate)/rate; took < least {
		t.Errorf("%d certificates took %s, less than %s", len(left), took, least)
	}
	asked := map[string]time.Time{}
	for _, r := range left {
		asked[r.Spec.PodName+".shop.svc"] = r.CreationTimestamp.Time
	}
	for _, r := range gone {
		if name := r.Spec.PodName + ".shop.svc"; slices.ContainsFunc(early, func(call ca.SignRequest) bool { return call.DNSNames[0] == name }) {
			asked[name] = r.CreationTimestamp.Time
		}
	}
	var latest time.Time
	for _, call := range o.ca.Requests()[before:] {
		at, known := asked[call.DNSNames[0]]
		if !known {
			t.Errorf("%s is asked for twice, or its request was deleted", call.DNSNames[0])
		}
		delete(asked, call.DNSNames[0])
		// The time of a request has whole seconds.
		if at.Before(latest.Add(-time.Second)) {
			t.Errorf("%s, asked for at %s, comes after one of %s", call.DNSNames[0], at, latest)
		}
		if at.After(latest) {
			latest = at
		}
	}
}
