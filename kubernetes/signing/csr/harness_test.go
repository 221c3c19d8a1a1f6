package csr_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/csr"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type request = certificatesv1.CertificateSigningRequest

const (
	signer, other = "example.com/workloads", "example.com/another"
	spiffe        = "spiffe://example.org/ns/shop/sa/web"
)

const requests = "certificatesigningrequests"

// cluster is one with a service account and a pod, a fake API server, a CA, an engine and a door.
type cluster struct {
	t      *testing.T
	api    *kubetest.Fake
	ca     *catest.CA
	audit  ratest.Audit
	log    logtest.Log
	conf   csr.Config
	engine *ra.Engine
	door   *csr.Door
	stop   func()

	mu     sync.Mutex
	events map[string]int
	writes int // statuses that were taken
}

// inCluster runs a test in a bubble. The door approves, unless change prevents it.
func inCluster(t *testing.T, change func(c *cluster), test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		if change != nil {
			change(c)
		}
		var err error
		if c.door, err = csr.New(c.conf); err != nil {
			t.Fatal(err)
		}
		defer c.engine.Close()
		c.run()
		defer func() { c.stop() }()
		test(c)
	})
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		t: t, ca: catest.NewCA(catest.Options{NamesFromRequest: true, Intermediates: 1}), events: map[string]int{},
		api: kubetest.NewFake(),
	}
	c.api.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "account-uid"}})
	c.api.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "pod-uid"}})
	c.api.Before = c.admit
	c.engine = ratest.Engine(t, ra.Config{
		Policy: ratest.Policy(t, rules()...), Audit: &c.audit, Log: c.log.Logger(), Doors: []ra.Door{signing.CSRDoor(signer)},
		Authorities: []ra.Authority{{Name: "ca", Client: ratest.Certifier{CA: c.ca}, Limits: ratest.Unlimited}},
	})
	c.conf = csr.Config{
		Client: c.api.Client(), Signers: []csr.Signer{{Name: signer, Approve: true}},
		Config: signing.Config{Cluster: "home", Issuer: c.engine, Log: c.log.Logger(), Observe: func(e signing.Event) {
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

// rules give names to service accounts, nodes and one user, and to no other subject.
func rules() []ra.Rule {
	return []ra.Rule{
		{Name: "accounts", Authority: "ca", Match: ra.Match{Kinds: []ra.Kind{ra.ServiceAccount}}, Usages: ra.Both, KeyTypes: []string{"ecdsa-p256"},
			Names: ra.Names{SPIFFEID: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}"}},
		{Name: "nodes", Authority: "ca", Match: ra.Match{Kinds: []ra.Kind{ra.Node}}, Names: ra.Names{DNSNames: []string{"{node}.nodes.example.org"}}},
		{Name: "jane", Authority: "ca", Match: ra.Match{Users: []string{"jane"}}, Usages: ra.Both, Names: ra.Names{DNSNames: []string{"{user}.example.org"}}},
	}
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
	c.t.Fatal("not ready after 30s")
}

// admit is the API server's check of an approval and a status (k8s.io/kubernetes,
// validateCertificateSigningRequestUpdate).
func (c *cluster) admit(call *kubetest.Call) error {
	if call.Verb != "update" || call.Resource != requests {
		return nil
	}
	before, next := c.find(call.Name), kubetest.As[request](call.Object)
	if before == nil || before.ResourceVersion != next.ResourceVersion {
		return nil // the server rejects it, too
	}
	if err := checkUpdate(call.Subresource, before, next); err != nil {
		c.t.Errorf("the API server refuses: %v", err)
		return apierrors.NewInvalid(schema.GroupKind{Kind: "CertificateSigningRequest"}, next.Name, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	return nil
}

// reads counts the objects that the door has looked up.
func (c *cluster) reads() int { return c.api.Called("get", "") }

func checkUpdate(subresource string, before, next *request) error {
	certificate := !bytes.Equal(before.Status.Certificate, next.Status.Certificate)
	word := conditions(before, "Approved")+conditions(before, "Denied") != conditions(next, "Approved")+conditions(next, "Denied")
	switch {
	case before.UID != next.UID || next.Spec.SignerName != signer:
		return fmt.Errorf("another request")
	case subresource != "approval" && subresource != "status":
		return fmt.Errorf("subresource %q", subresource)
	case subresource == "approval" && certificate || subresource == "status" && word:
		return fmt.Errorf("not for subresource %s", subresource)
	case certificate && len(before.Status.Certificate) > 0:
		return fmt.Errorf("the certificate is replaced")
	case conditions(next, "Approved")+conditions(next, "Denied") > 1 || len(next.Status.Conditions) < len(before.Status.Conditions):
		return fmt.Errorf("conditions %+v", next.Status.Conditions)
	}
	return nil
}

func conditions(r *request, kind certificatesv1.RequestConditionType) (n int) {
	for _, c := range r.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue && c.Reason != "" {
			n++
		}
	}
	return n
}

// csrOf is a CSR in PEM; a nil template has the name of the service account.
func csrOf(kind pki.KeyType, template *x509.CertificateRequest) []byte {
	if template == nil {
		id, _ := url.Parse(spiffe)
		template = &x509.CertificateRequest{URIs: []*url.URL{id}}
	}
	return ratest.CSR(kind, template)
}

// honest is a request of the service account, with a token that is bound to the pod.
func honest() *request {
	return &request{
		ObjectMeta: metav1.ObjectMeta{Name: "req-1", UID: "request-uid", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Now())},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Request: csrOf(pki.ECDSAP256, nil),
			Usages:   []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"},
			Username: "system:serviceaccount:shop:web", UID: "account-uid",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
			Extra: map[string]certificatesv1.ExtraValue{
				"authentication.kubernetes.io/pod-name": {"web-0"}, "authentication.kubernetes.io/pod-uid": {"pod-uid"},
				"authentication.kubernetes.io/node-name": {"node-1"}, "authentication.kubernetes.io/node-uid": {"node-uid"},
			},
		},
	}
}

func (c *cluster) create(all ...*request) {
	for _, r := range all {
		c.api.Put(r)
	}
	synctest.Wait()
}

func (c *cluster) find(name string) *request { return kubetest.Get[request](c.api, requests, "", name) }

func (c *cluster) get(name string) *request {
	c.t.Helper()
	r := c.find(name)
	if r == nil {
		c.t.Fatalf("there is no request %s", name)
	}
	return r
}

// say adds a condition, as kubectl certificate approve and deny do.
func (c *cluster) say(name string, kind certificatesv1.RequestConditionType) {
	c.t.Helper()
	r := c.get(name)
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Admin"})
	c.api.Put(r)
	synctest.Wait()
}

// state is what a request's conditions say, with the reason of the last; and whether it is issued.
func (c *cluster) state(name string) string {
	c.t.Helper()
	r := c.get(name)
	words := []string{}
	for _, condition := range r.Status.Conditions {
		words = append(words, string(condition.Type))
		if condition.Type != certificatesv1.CertificateApproved {
			words = append(words, condition.Reason)
		}
	}
	if len(r.Status.Certificate) > 0 {
		words = append(words, "issued")
	}
	if len(words) == 0 {
		return "pending"
	}
	return strings.Join(words, " ")
}

// want demands the state of the request req-1.
func (c *cluster) want(state string) {
	c.t.Helper()
	synctest.Wait()
	if got := c.state("req-1"); got != state {
		c.t.Errorf("the request is %q, want %q: %+v\n%s", got, state, c.get("req-1").Status.Conditions, c.log.String())
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

func (c *cluster) asked() int { return len(c.ca.Requests()) }

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// issuing is an engine whose orders another one fills.
type issuing struct {
	ra.Issuer
	issue func(context.Context, *ra.Order) (ra.Certificate, error)
}

func (i issuing) Issue(ctx context.Context, o *ra.Order) (ra.Certificate, error) {
	return i.issue(ctx, o)
}
