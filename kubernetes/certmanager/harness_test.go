package certmanager

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/cert-manager/issuer-lib/controllers/signer"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/certmanager/v1alpha1"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type request = cmapi.CertificateRequest

// web is a name that the namespace shop may ask for.
const web = "web.shop.apps.example.org"

// house is an engine with a CA, and a door with what issuer-lib calls.
type house struct {
	*hooks
	t      *testing.T
	ca     *catest.CA
	engine *ra.Engine
	limits ra.Limits
	audit  ratest.Audit
	log    logtest.Log
	api    *api
	work   *signing.Work[*request]
	stop   context.CancelFunc
	tasks  map[types.UID]*task // of try

	mu     sync.Mutex
	events map[string]int
	issuer issuerapi.Issuer // nil: it is not ready
}

// inHouse runs a test in a bubble.
func inHouse(t *testing.T, change func(h *house), test func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{
			t: t, ca: catest.NewCA(catest.Options{NamesFromRequest: true, Intermediates: 1}),
			limits: ratest.Unlimited, events: map[string]int{}, api: newAPI(), tasks: map[types.UID]*task{}, issuer: clusterIssuer("ca"),
		}
		if change != nil {
			change(h)
		}
		h.open()
		defer h.close()
		test(h)
	})
}

func (h *house) open() {
	h.t.Helper()
	h.engine = ratest.Engine(h.t, ra.Config{
		Policy: ratest.Policy(h.t, rules()...), Audit: &h.audit, Log: h.log.Logger(), Doors: []ra.Door{EngineDoor("ca"), EngineDoor("plain")},
		Authorities: []ra.Authority{{Name: "ca", Client: ratest.Certifier{CA: h.ca}, Limits: h.limits}, {Name: "plain", Client: catest.NewCA(catest.Options{}), Limits: h.limits}},
	})
	door, err := New(Config{
		Config:      signing.Config{Cluster: "home", Issuer: h.engine, Log: h.log.Logger(), Observe: h.observe},
		Authorities: []Authority{{Name: "ca", ClusterIssuers: true, Namespaces: []string{"shop", "team-*"}}, {Name: "plain", Namespaces: []string{"shop"}}},
	})
	must(h.t, err)
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	c := fairClient{h.api, door, signing.NewSlots()}
	h.hooks = &hooks{Door: door, ctx: ctx, cached: h.api, writes: c, reconcile: h.issuerLib(c)}
	h.work = signing.NewWork(ctx, signing.MaxHandled, h.handle)
	h.api.feed = signing.Feed(h.work, open, (*request).GetNamespace)
}

func (h *house) close() {
	h.stop()
	h.work.Close()
	for _, t := range h.tasks {
		h.withhold(t, errOver)
	}
	h.engine.Close()
}

func (h *house) observe(e signing.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events[e.Signer+" "+e.Result]++
}

func (h *house) happened(event string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[event]
}

// asked returns how often the CA was asked for a certificate.
func (h *house) asked() int { return len(h.ca.Requests()) }

// try has the door sign a request for an issuer, as issuer-lib does in one call of the handler.
func (h *house) try(r *request, issuer issuerapi.Issuer) (signer.PEMBundle, error) {
	t := h.tasks[r.UID]
	if t == nil {
		t = &task{ctx: h.ctx, uid: r.UID}
		h.tasks[r.UID] = t
	}
	return h.sign(context.WithValue(h.t.Context(), taskKey{}, t), signer.CertificateRequestObjectFromCertificateRequest(r), issuer)
}

// must has it sign a request for the issuer of its namespace.
func (h *house) must(r *request) signer.PEMBundle {
	h.t.Helper()
	bundle, err := h.try(r, issuerOf("ca"))
	must(h.t, err)
	return bundle
}

// rules let namespaces ask for names of their own, and shop is given one by another authority.
func rules() []ra.Rule {
	return []ra.Rule{
		{Name: "bank", Authority: "ca", Match: ra.Match{Doors: []string{"cert-manager/ca"}, Namespaces: []string{"bank"}}, Usages: ra.Both,
			Names: ra.Names{SPIFFEID: "spiffe://example.org/ns/{namespace}", DNSNames: []string{"bank.example.org"}, Requested: []string{"*.{namespace}.apps.example.org"}}},
		{Name: "apps", Authority: "ca", Match: ra.Match{Doors: []string{"cert-manager/ca"}, Namespaces: []string{"shop", "team-a"}}, KeyTypes: []string{"ecdsa-p256"},
			Names: ra.Names{Requested: []string{"*.{namespace}.apps.example.org"}}},
		{Name: "plain", Authority: "plain", Match: ra.Match{Doors: []string{"cert-manager/plain"}, Namespaces: []string{"shop"}},
			Names: ra.Names{DNSNames: []string{web}}},
	}
}

func issuerOf(authority string) *v1alpha1.CountersignIssuer {
	i := &v1alpha1.CountersignIssuer{Spec: v1alpha1.IssuerSpec{Authority: authority}}
	i.Namespace, i.Name = "shop", "issuer"
	return i
}

func clusterIssuer(authority string) *v1alpha1.CountersignClusterIssuer {
	return &v1alpha1.CountersignClusterIssuer{Spec: v1alpha1.IssuerSpec{Authority: authority}}
}

func named(names ...string) []byte {
	return ratest.CSR(pki.ECDSAP256, &x509.CertificateRequest{DNSNames: names})
}

// usual is the CSR of an honest request.
var usual = sync.OnceValue(func() []byte { return named(web) })

// honest is an approved request of the namespace shop.
func honest() *request {
	return &request{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "req-1", UID: "uid-1", CreationTimestamp: metav1.Now()},
		Spec: cmapi.CertificateRequestSpec{
			Request: usual(), Duration: &metav1.Duration{Duration: time.Hour},
			IssuerRef: cmmeta.IssuerReference{Group: v1alpha1.GroupVersion.Group, Kind: "CountersignIssuer", Name: "issuer"},
		},
		Status: cmapi.CertificateRequestStatus{Conditions: []cmapi.CertificateRequestCondition{condition("Approved", "True", "cert-manager.io")}},
	}
}

func condition(kind, status, reason string) cmapi.CertificateRequestCondition {
	return cmapi.CertificateRequestCondition{Type: cmapi.CertificateRequestConditionType(kind), Status: cmmeta.ConditionStatus(status), Reason: reason}
}

var must = fatal.If

// is reports which of issuer-lib's errors it is.
func is(err error) string {
	var permanent signer.PermanentError
	var issuer signer.IssuerError
	var pending signer.PendingError
	switch {
	case err == nil:
		return "issued"
	case errors.As(err, &permanent):
		return "permanent"
	case errors.As(err, &issuer):
		return "issuer"
	case errors.As(err, &pending):
		if after := pending.RequeueAfter; after < time.Second || after > 90*time.Second {
			return "pending for " + after.String()
		}
		return "pending"
	}
	return "plain"
}

// pause is how long a request is left pending.
func pause(err error) time.Duration {
	var pending signer.PendingError
	_ = errors.As(err, &pending) // else none
	return pending.RequeueAfter
}

// wants demands such an error, with the text.
func (h *house) wants(err error, kind, text string) {
	h.t.Helper()
	if is(err) != kind || err != nil && !strings.Contains(err.Error(), text) {
		h.t.Errorf("%s: %v; want %s: %s", is(err), err, kind, text)
	}
}
