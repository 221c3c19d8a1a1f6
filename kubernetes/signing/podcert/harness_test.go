package podcert_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/podcert"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type request = certificatesv1.PodCertificateRequest

const signer, other = "example.com/workloads", "example.com/another"

var requests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "podcertificaterequests"}

var certificates = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "PodCertificateRequest"}

type requestList = certificatesv1.PodCertificateRequestList

// cluster is one with a pod, its service account and its node, a fake API server, a CA, an engine
// and a door.
type cluster struct {
	t       *testing.T
	client  *fake.Clientset
	tracker clienttesting.ObjectTracker // its objects
	ca      *catest.CA
	audit   ratest.Audit
	log     logtest.Log
	conf    podcert.Config
	ra      ra.Config
	engine  *ra.Engine
	door    *podcert.Door
	stop    func() // ends the door

	mu       sync.Mutex
	events   map[string]int
	writes   int // of statuses that were taken
	rejected int // statuses that were not
	reads    int // of pods, service accounts and nodes
}

// inCluster runs a test in a synctest bubble. change may add objects and settings before the
// door begins.
func inCluster(t *testing.T, change func(c *cluster), test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		if change != nil {
			change(c)
		}
		c.open()
		defer c.engine.Close()
		defer func() { c.stop() }()
		test(c)
		if n := c.tally(&c.rejected); n > 0 {
			t.Errorf("%d statuses were sent that the API server does not take", n)
		}
	})
}

func newCluster(t *testing.T) *cluster {
	old := metav1.NewTime(time.Now())
	time.Sleep(time.Hour)
	c := &cluster{
		t: t, ca: catest.NewCA(catest.Options{NamesFromRequest: true}), events: map[string]int{},
		client: &fake.Clientset{}, tracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
	}
	// fake.NewClientset keeps the fields' managers as well, which takes 5 ms for each write.
	c.client.AddReactor("*", "*", clienttesting.ObjectReaction(c.tracker))
	c.client.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		found, err := c.tracker.Watch(action.GetResource(), action.GetNamespace())
		return true, found, err
	})
	for _, object := range []runtime.Object{
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "pod-uid", CreationTimestamp: old},
			Spec:       corev1.PodSpec{ServiceAccountName: "web", NodeName: "node-1"},
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "account-uid", CreationTimestamp: old}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "node-uid", CreationTimestamp: old}},
	} {
		if err := c.tracker.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	c.client.PrependReactor("get", "*", c.count)
	c.client.PrependReactor("update", "podcertificaterequests", c.admit)
	c.ra = ra.Config{
		Policy: ratest.Policy(t, rule()), Audit: &c.audit, Log: c.log.Logger(),
		Doors:       []ra.Door{signing.PodDoor(signer)},
		Authorities: []ra.Authority{{Name: "ca", Client: ratest.Certifier{CA: c.ca}, Limits: ratest.Unlimited}},
	}
	c.conf = podcert.Config{
		Cluster: "home", Client: c.client, Signers: []podcert.Signer{{Name: signer}}, Log: c.log.Logger(),
		Observe: func(e podcert.Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if e.Signer != signer {
				t.Errorf("the signer of an event is %q", e.Signer)
			}
			c.events[e.Result]++
		},
	}
	return c
}

func rule() ra.Rule {
	return ra.Rule{
		Name: "pods", Authority: "ca", MaxTTL: 91 * 24 * time.Hour, Match: ra.Match{Kinds: []ra.Kind{ra.Pod}, Doors: []string{signing.PodDoor(signer).Name}},
		Names: ra.Names{SPIFFEID: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}"},
	}
}

// open starts an engine and a door.
func (c *cluster) open() {
	c.t.Helper()
	c.engine = ratest.Engine(c.t, c.ra)
	if c.conf.Issuer == nil {
		c.conf.Issuer = c.engine
	}
	var err error
	if c.door, err = podcert.New(c.conf); err != nil {
		c.t.Fatal(err)
	}
	c.run()
}

// run lets the door work until stop.
func (c *cluster) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.door.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-done
	}
	synctest.Wait()
	for range 30 { // client-go lists and watches in its own time
		if c.door.Ready() == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// count counts the lookups.
func (c *cluster) count(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch action.GetResource().Resource {
	case "pods", "serviceaccounts", "nodes":
		c.reads++
	}
	return false, nil, nil
}

// admit is the API server's check of a status (k8s.io/kubernetes,
// ValidatePodCertificateRequestStatusUpdate).
func (c *cluster) admit(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := action.(clienttesting.UpdateAction).GetObject().(*request)
	if action.GetSubresource() != "status" {
		c.t.Errorf("an update of %q", action.GetSubresource())
	}
	found, err := c.tracker.Get(requests, next.Namespace, next.Name)
	if err != nil {
		return false, nil, nil // the tracker says so as well
	}
	if err := checkStatus(found.(*request), next, time.Now()); err != nil {
		c.t.Logf("status of %s: %v", next.Name, err)
		c.rejected++
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PodCertificateRequest"}, next.Name, nil)
	}
	c.writes++
	return false, nil, nil
}

func checkStatus(before, next *request, now time.Time) error {
	s := next.Status
	switch {
	case before.UID != next.UID || len(before.Status.Conditions) > 0:
		return fmt.Errorf("another request, or a finished one")
	case len(s.Conditions) != 1 || s.Conditions[0].Status != metav1.ConditionTrue || s.Conditions[0].Reason == "" || s.Conditions[0].LastTransitionTime.IsZero():
		return fmt.Errorf("conditions %+v", s.Conditions)
	case s.Conditions[0].Type != "Issued" && (s.CertificateChain != "" || s.NotAfter != nil || s.NotBefore != nil || s.BeginRefreshAt != nil):
		return fmt.Errorf("a refusal with a certificate")
	case s.Conditions[0].Type != "Issued":
		return nil
	}
	certs, err := pki.ParseCertificates([]byte(s.CertificateChain))
	if err != nil {
		return err
	}
	csr, err := x509.ParseCertificateRequest(before.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	leaf, most := certs[0], time.Duration(*before.Spec.MaxExpirationSeconds)*time.Second
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	switch {
	case !pki.SameKey(leaf.PublicKey, csr.PublicKey):
		return fmt.Errorf("another key")
	case !leaf.NotBefore.Equal(s.NotBefore.Time) || !leaf.NotAfter.Equal(s.NotAfter.Time):
		return fmt.Errorf("times that are not the leaf's")
	case now.Sub(leaf.NotBefore).Abs() >= 5*time.Minute || life < time.Hour || life > most:
		return fmt.Errorf("a lifetime of %s, begun %s ago", life, now.Sub(leaf.NotBefore))
	case s.BeginRefreshAt.Time.Before(leaf.NotBefore.Add(10*time.Minute)) || s.BeginRefreshAt.After(leaf.NotAfter.Add(-10*time.Minute)):
		return fmt.Errorf("a refresh at %s", s.BeginRefreshAt)
	}
	return nil
}

// csrOf is a CSR in DER.
func csrOf(key crypto.Signer, template *x509.CertificateRequest) []byte {
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		panic(err)
	}
	return der
}

var empty = sync.OnceValue(func() []byte { return csrOf(ratest.Key(pki.ECDSAP256), &x509.CertificateRequest{}) })

// honest is the request of a kubelet for the pod.
func honest() *request {
	seconds := int32(86400)
	return &request{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "req-1", UID: "request-uid", CreationTimestamp: metav1.NewTime(time.Now())},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: signer, PodName: "web-0", PodUID: "pod-uid", ServiceAccountName: "web", ServiceAccountUID: "account-uid",
			NodeName: "node-1", NodeUID: "node-uid", MaxExpirationSeconds: &seconds, StubPKCS10Request: empty(),
		},
	}
}

// create makes requests.
func (c *cluster) create(all ...*request) {
	c.t.Helper()
	for _, r := range all {
		if err := c.tracker.Create(requests, r, r.Namespace); err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
}

func (c *cluster) get(name string) *request {
	c.t.Helper()
	found, err := c.tracker.Get(requests, "shop", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return found.(*request)
}

// state is the condition and reason of a request; "pending" if it has none.
func (c *cluster) state(name string) string {
	c.t.Helper()
	r := c.get(name)
	if len(r.Status.Conditions) == 0 {
		return "pending"
	}
	return r.Status.Conditions[0].Type + " " + r.Status.Conditions[0].Reason
}

// want demands the state of the request req-1.
func (c *cluster) want(state string) {
	c.t.Helper()
	synctest.Wait()
	if got := c.state("req-1"); got != state {
		c.t.Errorf("the request is %q, want %q\n%s", got, state, c.log.String())
	}
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	if err := c.tracker.Delete(requests, "shop", name); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// fail makes calls fail; n times, or as long as it is not ended.
func (c *cluster) fail(verb, resource string, err error) (end func()) {
	var mu sync.Mutex
	on := true
	c.client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return on, nil, err
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		on = false
	}
}

// change changes the pod.
func (c *cluster) change(change func(pod *corev1.Pod)) {
	c.t.Helper()
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	found, err := c.tracker.Get(pods, "shop", "web-0")
	if err != nil {
		c.t.Fatal(err)
	}
	change(found.(*corev1.Pod))
	if err := c.tracker.Update(pods, found, "shop"); err != nil {
		c.t.Fatal(err)
	}
}

// renew replaces an object's UID, as if it was made anew at that time.
func (c *cluster) renew(resource, namespace, name, uid string, made time.Time) {
	c.t.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	found, err := c.tracker.Get(gvr, namespace, name)
	if err != nil {
		c.t.Fatal(err)
	}
	object := found.(metav1.Object)
	object.SetUID(types.UID(uid))
	object.SetCreationTimestamp(metav1.NewTime(made))
	if err := c.tracker.Update(gvr, found, namespace); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) remove(resource, namespace, name string) {
	c.t.Helper()
	if err := c.tracker.Delete(corev1.SchemeGroupVersion.WithResource(resource), namespace, name); err != nil {
		c.t.Fatal(err)
	}
}

// tally reads a counter of the cluster.
func (c *cluster) tally(n *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *n
}

func (c *cluster) happened(result string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[result]
}

// issuedTo are the names of the certificate.
func issuedTo(t *testing.T, r *request) []string {
	t.Helper()
	certs, err := pki.ParseCertificates([]byte(r.Status.CertificateChain))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range certs[0].URIs {
		names = append(names, u.String())
	}
	return slices.Concat(names, certs[0].DNSNames)
}
