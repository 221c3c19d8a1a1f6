package podcert_test

import (
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

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/podcert"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type request = certificatesv1.PodCertificateRequest

const signer, other = "example.com/workloads", "example.com/another"

const requests = "podcertificaterequests"

// cluster is one with a pod, its service account and its node, a fake API server, a CA, an engine
// and a door.
type cluster struct {
	t      *testing.T
	api    *kubetest.Fake
	ca     *catest.CA
	audit  ratest.Audit
	log    logtest.Log
	conf   podcert.Config
	ra     ra.Config
	engine *ra.Engine
	door   *podcert.Door
	stop   func() // ends the door

	mu       sync.Mutex
	events   map[string]int
	writes   int // of statuses that were taken
	rejected int // statuses that were not
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
		api: kubetest.NewFake(),
	}
	for _, object := range []runtime.Object{
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "pod-uid", CreationTimestamp: old},
			Spec:       corev1.PodSpec{ServiceAccountName: "web", NodeName: "node-1"},
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "account-uid", CreationTimestamp: old}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "node-uid", CreationTimestamp: old}},
	} {
		c.api.Put(object)
	}
	c.api.Before = c.admit
	c.ra = ra.Config{
		Policy: ratest.Policy(t, rule()), Audit: &c.audit, Log: c.log.Logger(),
		Doors:       []ra.Door{signing.PodDoor(signer)},
		Authorities: []ra.Authority{{Name: "ca", Client: ratest.Certifier{CA: c.ca}, Limits: ratest.Unlimited}},
	}
	c.conf = podcert.Config{
		Client: c.api.Client(), Signers: []string{signer},
		Config: signing.Config{Cluster: "home", Log: c.log.Logger(), Observe: func(e signing.Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if e.Signer != signer {
				t.Errorf("the signer of an event is %q", e.Signer)
			}
			c.events[e.Result]++
		}},
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
	if other, ok := c.conf.Issuer.(*issuer); ok {
		other.Issuer = c.engine
	}
	var err error
	if c.door, err = podcert.New(c.conf); err != nil {
		c.t.Fatal(err)
	}
	c.run()
}

// run lets the door work until stop.
func (c *cluster) run() {
	c.stop = background.Run(c.door.Run)
	synctest.Wait()
	for range 30 { // client-go lists and watches in its own time
		if c.door.Ready() == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// reads counts the lookups of pods, service accounts and nodes.
func (c *cluster) reads() int {
	return c.api.Called("get", "pods") + c.api.Called("get", "serviceaccounts") + c.api.Called("get", "nodes")
}

// admit is the API server's check of a status (k8s.io/kubernetes,
// ValidatePodCertificateRequestStatusUpdate).
func (c *cluster) admit(call *kubetest.Call) error {
	if call.Verb != "update" {
		return nil
	}
	if call.Resource != requests || call.Subresource != "status" {
		c.t.Errorf("an update of %s %q", call.Resource, call.Subresource)
	}
	before, next := kubetest.Get[request](c.api, requests, call.Namespace, call.Name), kubetest.As[request](call.Object)
	if before == nil || before.ResourceVersion != next.ResourceVersion {
		return nil // the server rejects it, too
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := checkStatus(before, next, time.Now()); err != nil {
		c.t.Logf("status of %s: %v", next.Name, err)
		c.rejected++
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodCertificateRequest"}, next.Name, nil)
	}
	c.writes++
	return nil
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
	for _, r := range all {
		c.api.Put(r)
	}
	synctest.Wait()
}

func (c *cluster) get(name string) *request {
	c.t.Helper()
	found := kubetest.Get[request](c.api, requests, "shop", name)
	if found == nil {
		c.t.Fatalf("there is no request %s", name)
	}
	return found
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
	c.erase(name)
	synctest.Wait()
}

// change changes the pod.
func (c *cluster) change(change func(pod *corev1.Pod)) {
	pod := kubetest.Get[corev1.Pod](c.api, "pods", "shop", "web-0")
	change(pod)
	c.api.Put(pod)
}

// renew replaces an object's UID, as if it was made anew at that time.
func (c *cluster) renew(resource, namespace, name, uid string, made time.Time) {
	object := *kubetest.Get[kubetest.Object](c.api, resource, namespace, name)
	meta := object.At("metadata").(map[string]any)
	meta["uid"], meta["creationTimestamp"] = uid, metav1.NewTime(made)
	c.api.Put(object)
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
