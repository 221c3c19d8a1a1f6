//go:build e2e

package real_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
)

// With Google's quota for an Enterprise CA, 7 certificates a second.
func TestRealRequestsWaitForTheQuotaInOrder(t *testing.T) {
	t.Parallel()
	const many, deleted, rate = 200, 20, 7
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{Rate: rate})
	o.ServiceAccount("shop", "web")
	o.Node("one")
	var names []string
	for i := range many {
		names = append(names, fmt.Sprintf("web-%d", i))
	}
	o.warmUp()
	before := len(o.ca.Requests())
	start := time.Now()
	requests := o.ask("shop", names...)
	left, gone := requests[:many-deleted], requests[many-deleted:]
	for _, r := range gone {
		must(t, o.Client().CertificatesV1().PodCertificateRequests("shop").Delete(t.Context(), r.Name, metav1.DeleteOptions{}))
	}
	o.awaitIssued(left...)
	if took, least := time.Since(start), time.Second*(many-deleted-rate)/rate; took < least {
		t.Errorf("%d certificates took %s, less than %s", len(left), took, least)
	}
	asked := map[string]time.Time{}
	for _, r := range left {
		asked[r.Spec.PodName+".shop.svc"] = r.CreationTimestamp.Time
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
