package podcert_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing/podcert"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	issuedState = "Issued Issued" //nolint:dupword // the condition and its reason
	pending     = "pending"
	mismatch    = "Denied IdentityMismatch"
	notOurs     = "Denied PodNotEligible"
	badCSR      = "Failed InvalidCertificateSigningRequest"
	badNotes    = "Denied InvalidUnverifiedUserAnnotations"
	badKey      = "Denied UnsupportedKeyType"
)

func key(curve elliptic.Curve) crypto.Signer {
	made, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return made
}

// forged is an honest CSR with another key's signature.
func forged() []byte {
	der := slices.Clone(empty())
	der[len(der)-5] ^= 1
	return der
}

// What this door alone can see, and what it writes. In no case is the authority asked.
func TestDishonestRequestIsRefused(t *testing.T) {
	before := func() time.Time { return time.Now().Add(-time.Hour) }
	for name, c := range map[string]struct {
		request func(*request)
		cluster func(*cluster)
		want    string
		says    string
	}{
		"another pod's UID":                  {request: func(r *request) { r.Spec.PodUID = "x" }, want: mismatch, says: `the pod "web-0" has the UID "pod-uid"`},
		"a pod that there is not":            {request: func(r *request) { r.Spec.PodName = "web-9" }, want: pending},
		"a pod of another namespace":         {request: func(r *request) { r.Namespace = "bank" }, want: pending},
		"a pod that is gone":                 {cluster: func(c *cluster) { c.api.Remove("pods", "shop", "web-0") }, want: pending},
		"a pod made anew, long ago":          {cluster: func(c *cluster) { c.renew("pods", "shop", "web-0", "new", before()) }, want: mismatch},
		"a pod made anew just now":           {cluster: func(c *cluster) { c.renew("pods", "shop", "web-0", "new", time.Now()) }, want: pending},
		"a finished pod":                     {cluster: func(c *cluster) { c.change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }) }, want: notOurs, says: "finished"},
		"a failed pod":                       {cluster: func(c *cluster) { c.change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }) }, want: notOurs},
		"a finished pod that goes":           {cluster: func(c *cluster) { c.change(finishedAndGoing) }, want: pending},
		"a mirror pod":                       {cluster: func(c *cluster) { c.change(mirror) }, want: notOurs, says: "static pod"},
		"a pod on no node yet":               {cluster: func(c *cluster) { c.change(func(p *corev1.Pod) { p.Spec.NodeName = "" }) }, want: pending},
		"another service account":            {request: func(r *request) { r.Spec.ServiceAccountName = "admin" }, want: mismatch, says: `runs as the service account "web"`},
		"another service account's UID":      {request: func(r *request) { r.Spec.ServiceAccountUID = "x" }, want: mismatch, says: "account-uid"},
		"a service account made anew":        {cluster: func(c *cluster) { c.renew("serviceaccounts", "shop", "web", "new", time.Now()) }, want: pending},
		"a service account that is gone":     {cluster: func(c *cluster) { c.api.Remove("serviceaccounts", "shop", "web") }, want: pending},
		"another node":                       {request: func(r *request) { r.Spec.NodeName = "node-2" }, want: mismatch, says: `on the node "node-1"`},
		"another node's UID":                 {request: func(r *request) { r.Spec.NodeUID = "x" }, want: mismatch, says: "node-uid"},
		"a node made anew":                   {cluster: func(c *cluster) { c.renew("nodes", "", "node-1", "new", time.Now()) }, want: pending},
		"a node that is gone":                {cluster: func(c *cluster) { c.api.Remove("nodes", "", "node-1") }, want: pending},
		"an unknown annotation":              {request: func(r *request) { r.Spec.UnverifiedUserAnnotations = map[string]string{"example.com/san": "bank"} }, want: badNotes, says: "example.com/san"},
		"a name that no rule allows":         {request: func(r *request) { asks(r, "bank.example.org") }, want: badNotes, says: `"bank.example.org"`},
		"no name":                            {request: func(r *request) { asks(r, "") }, want: badNotes},
		"another namespace's name":           {request: func(r *request) { asks(r, "a.shop.apps.example.org,a.bank.apps.example.org") }, cluster: apps, want: badNotes, says: "a.bank.apps"},
		"a wildcard":                         {request: func(r *request) { asks(r, "*.shop.apps.example.org") }, cluster: apps, want: badNotes},
		"a name with a line break":           {request: func(r *request) { asks(r, "a.shop.apps.example.org\nx") }, cluster: apps, want: badNotes, says: `\n`},
		"too many names":                     {request: func(r *request) { asks(r, strings.Repeat("a.shop.apps.example.org,", 40)) }, cluster: apps, want: badNotes, says: "41"},
		"a huge annotation":                  {request: func(r *request) { asks(r, strings.Repeat("a", 200<<10)) }, want: badNotes, says: "4096"},
		"a CSR that is not DER":              {request: func(r *request) { r.Spec.StubPKCS10Request = []byte("-----BEGIN") }, want: badCSR},
		"no CSR":                             {request: func(r *request) { r.Spec.StubPKCS10Request = nil }, want: badCSR, says: "kubelet is older"},
		"a CSR and something behind it":      {request: func(r *request) { r.Spec.StubPKCS10Request = append(slices.Clone(empty()), 0) }, want: badCSR},
		"a CSR with another key's signature": {request: func(r *request) { r.Spec.StubPKCS10Request = forged() }, want: badCSR},
		"a huge CSR":                         {request: func(r *request) { r.Spec.StubPKCS10Request = make([]byte, 1<<20) }, want: badCSR, says: "more than 10240 bytes"},
		"a CSR that asks to be a CA's":       {request: func(r *request) { r.Spec.StubPKCS10Request = csrOf(ratest.Key(pki.ECDSAP256), wanting()) }, want: badCSR, says: "extension"},
		"a CSR that asks to sign code":       {request: func(r *request) { r.Spec.StubPKCS10Request = csrOf(ratest.Key(pki.ECDSAP256), forCode()) }, want: badCSR, says: "extended key usage"},
		"a key with P-224":                   {request: func(r *request) { r.Spec.StubPKCS10Request = csrOf(key(elliptic.P224()), &x509.CertificateRequest{}) }, want: badKey, says: "keyType"},
		"an RSA key with 2,048 bits": {request: func(r *request) {
			r.Spec.StubPKCS10Request = csrOf(ratest.Key(pki.RSA2048), &x509.CertificateRequest{})
		}, want: badKey},
		"a key that the rule does not have": {request: func(r *request) {
			r.Spec.StubPKCS10Request = csrOf(ratest.Key(pki.ECDSAP384), &x509.CertificateRequest{})
		}, want: badKey, says: `use one of ["ecdsa-p256"]`},
		"a namespace that no rule has": {cluster: func(c *cluster) { c.forbid("bank") }, want: "Denied NotPermitted", says: "no rule matches"},
		"less than an hour":            {request: func(r *request) { r.Spec.MaxExpirationSeconds = new(int32(60)) }, want: "Denied NotPermitted", says: "no less than 1h"},
		"another signer's":             {request: func(r *request) { r.Spec.SignerName = other }, want: pending},
		"a signer of Kubernetes' own":  {request: func(r *request) { r.Spec.SignerName = "kubernetes.io/kube-apiserver-client" }, want: pending},
		"a request that is finished":   {request: func(r *request) { r.Status.Conditions = []metav1.Condition{{Type: "Denied", Reason: "Before"}} }, want: "Denied Before"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(cl *cluster) {
				limited := rule()
				limited.KeyTypes = []string{"ecdsa-p256"}
				cl.ra.Policy = ratest.Policy(t, limited) // before the row's own
				if c.cluster != nil {
					c.cluster(cl)
				}
			}, func(cl *cluster) {
				r := honest()
				if c.request != nil {
					c.request(r)
				}
				cl.create(r)
				time.Sleep(5 * time.Minute) // nor does it change its mind
				found := kubetest.Get[request](cl.api, requests, r.Namespace, r.Name)
				got := pending
				message := ""
				if conditions := found.Status.Conditions; len(conditions) > 0 {
					got, message = conditions[0].Type+" "+conditions[0].Reason, conditions[0].Message
				}
				if got != c.want || !strings.Contains(message, c.says) || len(message) > 1024 {
					t.Errorf("the request is %q: %s\n%s", got, message, cl.log.String())
				}
				if n := len(cl.ca.Requests()); n > 0 {
					t.Errorf("the authority was asked %d times", n)
				}
				refused := 0 // by us
				if cl.happened("denied")+cl.happened("failed") > 0 {
					refused = 1
				}
				if lines := cl.audit.Refusals(t); lines != refused {
					t.Errorf("%d refusals in the audit log, want %d", lines, refused)
				}
			})
		})
	}
}

func mirror(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }

func finishedAndGoing(p *corev1.Pod) {
	p.Status.Phase = corev1.PodSucceeded
	p.DeletionTimestamp = new(metav1.NewTime(time.Now()))
}

func wanting() *x509.CertificateRequest {
	return &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 1}, Value: []byte{5, 0}}}}
}

func forCode() *x509.CertificateRequest {
	return &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 37}, Value: []byte{0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 3}}}}
}

// forbid gives certificates only to pods of that namespace.
func (c *cluster) forbid(namespace string) {
	only := rule()
	only.Match.Namespaces = []string{namespace}
	c.ra.Policy = ratest.Policy(c.t, only)
}

// Names in a CSR are neither granted nor a reason to refuse.
func TestNamesInTheCSRGrantNothing(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		r := honest()
		admin, err := url.Parse("spiffe://example.org/admin")
		if err != nil {
			t.Fatal(err)
		}
		r.Spec.StubPKCS10Request = csrOf(ratest.Key(pki.ECDSAP256), &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, URIs: []*url.URL{admin}, DNSNames: []string{"bank.example.org"},
		})
		c.create(r)
		c.want(issuedState)
		if names := issuedTo(t, c.get("req-1")); !slices.Equal(names, []string{"spiffe://example.org/ns/shop/sa/web"}) {
			t.Errorf("issued to %q", names)
		}
	})
}

func TestTerminatingPodThatRunsGetsItsRefresh(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.change(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(time.Now())) })
	}, func(c *cluster) {
		c.create(honest())
		c.want(issuedState)
	})
}

// next is another request of the pod.
func next(name string) *request {
	r := honest()
	r.Name, r.UID = name, types.UID(name)
	return r
}

// The memory of service accounts and nodes has no word in a refusal, holds for one UID, and ages.
func TestMemoryOfUIDsIsShort(t *testing.T) {
	for resource, c := range map[string]struct {
		namespace, name string
		uid             func(r *request) *types.UID
	}{
		"serviceaccounts": {"shop", "web", func(r *request) *types.UID { return &r.Spec.ServiceAccountUID }},
		"nodes":           {"", "node-1", func(r *request) *types.UID { return &r.Spec.NodeUID }},
	} {
		t.Run(resource, func(t *testing.T) {
			inCluster(t, nil, func(cl *cluster) {
				ask := func(name string, uid types.UID, want string, reads int) {
					t.Helper()
					before := cl.reads()
					r := next(name)
					if uid != "" {
						*c.uid(r) = uid
					}
					cl.create(r)
					if got := cl.state(name); got != want || cl.reads()-before != reads {
						t.Errorf("%s: %s after %d lookups, want %s after %d", name, got, cl.reads()-before, want, reads)
					}
				}
				ask("first", "", issuedState, 3)
				ask("known", "", issuedState, 1)
				ask("wrong", "x", mismatch, 2)
				cl.renew(resource, c.namespace, c.name, "new", time.Now())
				ask("made-anew", "new", issuedState, 2)
				cl.renew(resource, c.namespace, c.name, "newer", time.Now())
				time.Sleep(time.Minute)
				lookups := 3 // the pod, and both again
				if resource == "serviceaccounts" {
					lookups = 2
				}
				ask("aged", "new", pending, lookups)
			})
		})
	}
}

func TestSettingsThatCannotWork(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		for name, change := range map[string]func(*podcert.Config){
			"no cluster":         func(conf *podcert.Config) { conf.Cluster = "" },
			"no client":          func(conf *podcert.Config) { conf.Client = nil },
			"no issuer":          func(conf *podcert.Config) { conf.Issuer = nil },
			"no signer":          func(conf *podcert.Config) { conf.Signers = nil },
			"Kubernetes' signer": func(conf *podcert.Config) { conf.Signers[0] = "kubernetes.io/kube-apiserver-client-pod" },
			"one twice":          func(conf *podcert.Config) { conf.Signers = append(conf.Signers, conf.Signers[0]) },
		} {
			conf := c.conf
			conf.Signers = slices.Clone(conf.Signers)
			change(&conf)
			if _, err := podcert.New(conf); err == nil {
				t.Errorf("%s: accepted", name)
			}
		}
	})
}

func asks(r *request, names string) {
	r.Spec.UnverifiedUserAnnotations = map[string]string{podcert.AnnotationDNSNames: names}
}

// apps lets pods ask for names of their namespace.
func apps(c *cluster) {
	allowing := rule()
	allowing.Names.Requested = []string{"*.{namespace}.apps.example.org"}
	c.ra.Policy = ratest.Policy(c.t, allowing)
}

func TestPodGetsTheNamesThatItsAnnotationAsksFor(t *testing.T) {
	inCluster(t, apps, func(c *cluster) {
		r := honest()
		asks(r, "a.shop.apps.example.org, b.shop.apps.example.org")
		c.create(r)
		c.want(issuedState)
		want := []string{"spiffe://example.org/ns/shop/sa/web", "a.shop.apps.example.org", "b.shop.apps.example.org"}
		if names := issuedTo(t, c.get("req-1")); !slices.Equal(names, want) {
			t.Errorf("issued to %q", names)
		}
	})
}
