//go:build e2e

package real_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
)

// BenchmarkFleet starts 1,000 pods on ten nodes, as fast as one client creates them. API server,
// etcd, kubelets and the registration authority share the machine. (`make bench NAME=kubernetes`)
func BenchmarkFleet(b *testing.B) {
	const nodes, pods = 10, 1000
	for b.Loop() {
		o := open(b, kubetest.Start(b, kubetest.Options{Nodes: true}), ra.Limits{Rate: pods, Burst: pods})
		o.ServiceAccount("shop", "web")
		var names []string
		for i := range nodes {
			names = append(names, fmt.Sprintf("node-%d", i))
		}
		o.HollowNodes(names...)
		start := time.Now()
		var all []*corev1.Pod
		for i := range pods {
			all = append(all, o.CreatePod(kubetest.CertificatePod("shop", fmt.Sprintf("web-%d", i), "web", names[i%nodes], signer)))
		}
		created := time.Since(start)
		o.AwaitRunning(all...)
		b.ReportMetric(created.Seconds(), "s-to-create")
		b.ReportMetric(time.Since(start).Seconds(), "s-to-run")
		b.ReportMetric(float64(len(o.ca.Requests())), "CA-calls")
		b.ReportMetric(o.medianWait().Seconds(), "s-median-to-issue")
	}
}

// medianWait is from the making of a request to its certificate; Kubernetes keeps whole seconds.
func (o *registrar) medianWait() time.Duration {
	o.t.Helper()
	var waits []time.Duration
	for _, r := range o.requests() {
		kind, c := outcome(&r)
		if kind != issued {
			o.t.Errorf("the request of pod %s is %q: %s", r.Spec.PodName, kind, c.Message)
		}
		waits = append(waits, c.LastTransitionTime.Sub(r.CreationTimestamp.Time))
	}
	slices.Sort(waits)
	return waits[len(waits)/2]
}
