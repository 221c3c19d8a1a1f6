//go:build e2e && linux && long

package real_test

import (
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

const (
	backlogPods  = 10_000
	backlogNodes = 10
	quota        = 7                     // certificates a second, Google's for an Enterprise CA
	pace         = 12 * time.Millisecond // between two objects that the test creates
	oldAge       = 15 * time.Minute      // of a request: then kube-controller-manager may delete it
	looks        = 5 * time.Minute       // it looks so often, and knows nothing yet when it starts
	// underWay is a namespace's share of the calls at the same time. A busy machine may delay
	// calls that were within the quota, so that so many more reach the CA together.
	underWay = 16
)

// Ten thousand pods have asked when the program begins, with Google's quota for an Enterprise CA. Their
// certificates take 24 minutes, and a request lives for 15 to 20: each kubelet makes another one then.
func TestRealLongTenThousandPodsOutlastTheirRequests(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	b.createPods()
	b.open()
	b.askAll()
	b.rate, b.lease = quota, "30s"
	b.replica = b.start(counting)
	b.wait(time.After(oldAge - looks + 5*time.Second))
	b.checkCertificates()
	b.checkQuota()
	late, most := passed(b.order()), b.memory()
	t.Logf("%d certificates; %d requests died and came back; a request was passed by %d; at most %.0f MiB", backlogPods, b.died, late, most/1024)
	if b.died < 100 {
		t.Errorf("%d requests were deleted before they had a certificate: that shows nothing", b.died)
	}
	if late > 30*quota { // seconds of the quota: starved, the program hears of two requests in another order
		t.Errorf("a request was passed by %d that were made after it", late)
	}
	if most > 1<<20 { // the limit of the base
		t.Errorf("it needs %.0f MiB", most/1024)
	}
}

// backlog is a deployment, pods without end, and kubelets that do nothing but ask for them.
type backlog struct {
	*deployment
	replica *replica
	nodes   []string
	pods    []*corev1.Pod
	places  map[string]int // of pods, by their names
	again   chan int       // pods that need a request
	began   time.Time      // of the test
	samples []sample

	mu     sync.Mutex
	asked  []time.Time       // when a pod asked first, as Kubernetes keeps it
	tries  []int             // requests that a pod has made
	issued map[types.UID]int // requests with a certificate, and their pods
	served map[int]int       // how many of them a pod has
	died   int               // requests that were deleted without
}

// sample is how many calls the CA had got at some time between two.
type sample struct {
	from, to time.Time
	calls    int
	kib      float64 // of memory, resident
}

func newBacklog(t *testing.T) *backlog {
	t.Helper()
	b := &backlog{
		deployment: deploy(t, kubetest.Start(t, kubetest.Options{Nodes: true})), again: make(chan int, backlogPods), places: map[string]int{},
		asked: make([]time.Time, backlogPods), tries: make([]int, backlogPods), issued: map[types.UID]int{}, served: map[int]int{}, began: time.Now(),
	}
	b.ServiceAccount("shop", "web")
	return b
}

func (b *backlog) createPods() {
	b.t.Helper()
	for n := range backlogNodes {
		b.nodes = append(b.nodes, fmt.Sprintf("node-%d", n))
		b.Node(b.nodes[n])
	}
	b.pods = make([]*corev1.Pod, backlogPods)
	for i := range b.pods {
		b.pods[i] = kubetest.CertificatePod("shop", fmt.Sprintf("web-%d", i), "web", b.nodes[i%backlogNodes], signer)
		b.places[b.pods[i].Name] = i
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	b.parallel(backlogPods, func(i int) (err error) {
		<-tick.C
		b.pods[i], err = b.Client().CoreV1().Pods("shop").Create(b.t.Context(), b.pods[i], metav1.CreateOptions{})
		return err
	})
	b.note("all pods are there")
}

// askAll has a kubelet ask for each pod, one after the other. It returns when all have.
func (b *backlog) askAll() {
	b.t.Helper()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range b.pods {
		<-tick.C
		b.again <- i
	}
	within(b.t, oldAge, "not all pods have asked", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !slices.ContainsFunc(b.asked, time.Time.IsZero)
	})
	b.note("all pods have asked")
}

// open starts the kubelets.
func (b *backlog) open() {
	b.t.Helper()
	var clients []kubernetes.Interface
	var templates []*certificatesv1.PodCertificateRequest
	for n, name := range b.nodes {
		clients = append(clients, b.ClientFor(b.NodeUser(name)))
		templates = append(templates, b.CertificateRequest(b.pods[n], signer))
	}
	informer := informers.NewPodCertificateRequestInformer(b.Client(), "shop", 0, cache.Indexers{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: b.see, UpdateFunc: func(_, now any) { b.see(now) }, DeleteFunc: b.bury,
	})
	must(b.t, err)
	inBackground(b.t, informer.RunWithContext)
	for range makers {
		inBackground(b.t, func(ctx context.Context) {
			for {
				select {
				case i := <-b.again:
					b.create(ctx, clients[i%backlogNodes], templates[i%backlogNodes].DeepCopy(), i)
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// create creates a request for a pod, with a key that is new.
func (b *backlog) create(ctx context.Context, kubelet kubernetes.Interface, r *certificatesv1.PodCertificateRequest, i int) {
	b.mu.Lock()
	b.tries[i]++
	r.Name = fmt.Sprintf("%s-%d", b.pods[i].Name, b.tries[i])
	b.mu.Unlock()
	r.OwnerReferences[0].Name, r.OwnerReferences[0].UID = b.pods[i].Name, b.pods[i].UID
	r.Spec.PodName, r.Spec.PodUID = b.pods[i].Name, b.pods[i].UID
	r.Spec.StubPKCS10Request = kubetest.CSR(b.t, ecdsaKey(b.t, elliptic.P256()), &x509.CertificateRequest{})
	for ctx.Err() == nil {
		_, err := kubelet.CertificatesV1().PodCertificateRequests("shop").Create(ctx, r, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) { // the answer was lost
			return
		}
		time.Sleep(time.Second) // as a kubelet does, which tries again and again
	}
}

// see takes a request as it is now.
func (b *backlog) see(object any) {
	r := object.(*certificatesv1.PodCertificateRequest)
	i, ours := b.places[r.Spec.PodName]
	kind, c := outcome(r)
	if !ours {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked[i].IsZero() {
		b.asked[i] = r.CreationTimestamp.Time
	}
	if _, known := b.issued[r.UID]; kind == issued && !known {
		b.issued[r.UID] = i
		b.served[i]++
	} else if kind != "" && kind != issued {
		b.t.Errorf("request %s is %s: %s: %s", r.Name, kind, c.Reason, c.Message)
	}
}

// bury takes a request that is deleted: a kubelet that still needs a certificate makes another.
func (b *backlog) bury(object any) {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	b.see(object)
	r := object.(*certificatesv1.PodCertificateRequest)
	i, ours := b.places[r.Spec.PodName]
	b.mu.Lock()
	defer b.mu.Unlock()
	if ours && b.served[i] == 0 {
		b.died++
		b.again <- i // there is room for each pod once
	}
}

// wait returns when each pod has its certificate. The cleaner begins meanwhile.
func (b *backlog) wait(clean <-chan time.Time) {
	b.t.Helper()
	look, end := time.NewTicker(5*time.Second), time.After(45*time.Minute)
	defer look.Stop()
	for b.sample(); b.pending() > 0; {
		select {
		case <-look.C:
			b.sample()
		case <-clean:
			b.Controllers("podcertificaterequest-cleaner-controller")
			b.note("the cleaner begins")
		case <-end:
			b.t.Fatalf("%d pods have no certificate", b.pending())
		}
	}
	b.note("all pods have certificates")
}

func (b *backlog) pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return backlogPods - len(b.served)
}

func (b *backlog) sample() {
	b.t.Helper()
	s := sample{from: time.Now(), calls: len(b.replica.calls())}
	s.to = time.Now()
	var err error
	_, s.kib, err = figures.Usage(b.replica.PID())
	must(b.t, err)
	if b.samples = append(b.samples, s); len(b.samples)%24 == 0 {
		b.note(fmt.Sprintf("%d calls, %.0f MiB", s.calls, s.kib/1024))
	}
}

func (b *backlog) note(what string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Logf("%8s: %s; %d pods have certificates, %d requests died", time.Since(b.began).Round(time.Second), what, len(b.served), b.died)
}

// memory is the most that the program had.
func (b *backlog) memory() (kib float64) {
	for _, s := range b.samples {
		kib = max(kib, s.kib)
	}
	return kib
}

// checkQuota compares the calls between any two samples with the quota.
func (b *backlog) checkQuota() {
	b.t.Helper()
	for i, first := range b.samples {
		for _, s := range b.samples[i+1:] {
			got, most := s.calls-first.calls, quota*s.to.Sub(first.from).Seconds()+quota+underWay
			if float64(got) > most {
				b.t.Errorf("%d calls within %s, at most %.0f are allowed", got, s.to.Sub(first.from), most)
			}
		}
	}
}

// checkCertificates holds the calls of the CA to one for each pod. One more is allowed for each
// request that the cleaner deleted while it was with the CA, and one for the first reply, which shows
// how long before its time the CA has a certificate begin.
func (b *backlog) checkCertificates() {
	b.t.Helper()
	lost := 0
	for _, a := range b.made() {
		if _, delivered := b.issued[types.UID(a.Object)]; !delivered {
			lost++
		}
	}
	for i, n := range b.served {
		if n != 1 {
			b.t.Errorf("pod %s has %d certificates", b.pods[i].Name, n)
		}
	}
	calls := len(b.replica.calls())
	b.t.Logf("%d calls of the CA for %d pods, %d of them for requests that were deleted meanwhile", calls, backlogPods, lost)
	if more := calls - backlogPods - lost; more < 0 || more > 1 || lost > 10 {
		b.t.Errorf("%d calls", calls)
	}
}

// made returns the certificates of the pods, in the order in which they were made.
func (b *backlog) made() (all []audited) {
	b.t.Helper()
	for _, a := range b.replica.audit() {
		if _, ours := b.places[a.Subject.Pod]; ours && a.Event == "issued" {
			all = append(all, a)
		}
	}
	return all
}

// order is when those were asked for first that have got certificates, in the order in which they
// got them.
func (b *backlog) order() (asked []time.Time) {
	b.t.Helper()
	for _, a := range b.made() {
		asked = append(asked, b.asked[b.places[a.Subject.Pod]])
	}
	return asked
}
