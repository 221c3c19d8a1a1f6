package podcert_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
)

// anyPod has each pod of a namespace exist that is asked for, with its name as its UID.
func (c *cluster) anyPod(namespace string, made metav1.Time) {
	c.api.Also(func(call *kubetest.Call) error {
		if call.Verb == "get" && call.Resource == "pods" && call.Namespace == namespace {
			call.Reply = &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: call.Name, UID: types.UID(call.Name), CreationTimestamp: made},
				Spec:       corev1.PodSpec{ServiceAccountName: "web", NodeName: "node-1"},
			}
		}
		return nil
	})
}

// crowd serves any number of pods, pod-1 with the UID pod-1 and so on.
func (c *cluster) crowd() {
	made := metav1.NewTime(time.Now().Add(-time.Hour))
	c.anyPod("shop", made)
	named := rule()
	named.Names.SPIFFEID = "spiffe://example.org/pod/{pod}"
	c.ra.Policy = ratest.Policy(c.t, named)
}

// of is the nth pod's request, the given time after its first.
func of(n int, first, made time.Time) *request {
	r := honest()
	pod := fmt.Sprintf("pod-%d", n)
	r.Name, r.UID = fmt.Sprintf("req-%d-%d", n, made.Unix()), types.UID(fmt.Sprintf("%s-%d", pod, made.Sub(first)))
	r.CreationTimestamp, r.Spec.PodName, r.Spec.PodUID = metav1.NewTime(made), pod, types.UID(pod)
	return r
}

// A thousand pods and a CA of seven certificates in ten seconds: 24 minutes, and no request lives
// for more than 15. A kubelet makes another then, and its pod keeps its place.
func TestPodKeepsItsPlaceWhenItsRequestEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	const pods, life, each = 1000, 15 * time.Minute, time.Second
	var first time.Time
	inCluster(t, func(c *cluster) {
		c.ra.Authorities[0].Limits = ra.Limits{Rate: 0.7, Burst: 1}
		c.crowd()
		first = time.Now().Truncate(time.Second)
		time.Sleep(pods * each)
		for n := range pods {
			c.make(of(n, first, first.Add(time.Duration(n)*each)))
		}
	}, func(c *cluster) {
		for range 30 {
			time.Sleep(time.Minute)
			c.clean(first, life)
		}
		if n := c.happened("issued"); n != pods || c.happened("denied")+c.happened("failed")+c.happened("undelivered") > 0 {
			t.Errorf("%v", c.events)
		}
		var order []string
		asked := map[string]int{}
		for _, call := range c.ca.Requests() {
			order = append(order, call.SubjectID)
			asked[call.SubjectID]++
		}
		if len(asked) != pods || len(order) > pods+1 { // the first one shows the backdating
			t.Errorf("%d calls for %d pods", len(order), len(asked))
		}
		late := 0
		for place, id := range slices.Compact(order) {
			var n int
			if _, err := fmt.Sscanf(id, "spiffe://example.org/pod/pod-%d", &n); err != nil {
				t.Fatal(err)
			}
			late = max(late, place-n)
		}
		if late > 10 {
			t.Errorf("one was asked for %d places after its own", late)
		}
	})
}

// clean is what Kubernetes does with requests that are old, and kubelets without an answer then.
func (c *cluster) clean(first time.Time, life time.Duration) {
	c.t.Helper()
	list, err := c.api.Client().CertificatesV1().PodCertificateRequests("").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	all := list.Items
	slices.SortFunc(all, func(a, b request) int {
		return cmp.Compare(a.CreationTimestamp.UnixNano(), b.CreationTimestamp.UnixNano())
	})
	now := time.Now()
	for i, r := range all {
		if now.Sub(r.CreationTimestamp.Time) < life {
			continue
		}
		c.api.Remove(requests, r.Namespace, r.Name)
		if len(r.Status.Conditions) == 0 {
			var n int
			if _, err := fmt.Sscanf(r.Spec.PodName, "pod-%d", &n); err != nil {
				c.t.Fatal(err)
			}
			c.make(of(n, first, now))
		}
		if i%20 == 0 {
			synctest.Wait() // the fake's watch holds 100 events
		}
	}
}

func TestFloodOfBadRequestsIsRefusedAndBarelyLogged(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inCluster(t, func(c *cluster) { c.crowd() }, func(c *cluster) {
		for n := range 2000 {
			r := of(n, time.Now(), time.Now())
			r.Spec.StubPKCS10Request = []byte("none")
			c.make(r)
			if n%20 == 0 {
				synctest.Wait() // the fake's watch holds 100 events
			}
		}
		synctest.Wait()
		if n := c.happened("failed"); n != 2000 {
			t.Errorf("%v", c.events)
		}
		if lines := strings.Count(c.log.String(), "\n"); lines > 300 {
			t.Errorf("%d log lines", lines)
		}
	})
}
