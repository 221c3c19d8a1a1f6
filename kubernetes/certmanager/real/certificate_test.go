//go:build e2e && certmanager && linux

package real_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cmutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/countersign-dev/countersign/kubernetes/certmanager/v1alpha1"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// One cluster serves all of them, one after the other.
func TestRealCertManager(t *testing.T) {
	s := open(t, config)
	s.manage()
	s.create(clusterIssuer())
	await(s, "the cluster issuer is ready", clusterIssuer(), isReady)
	for _, test := range []struct {
		name string
		run  func(*site)
	}{
		{"certificate becomes ready and is renewed", (*site).testRenewal},
		{"names of others are refused", (*site).testNames},
		{"a CA that is away is asked again for the same key", (*site).testAway},
		{"a CA that refuses us makes the issuer not ready", (*site).testRejected},
		{"an issuer of a namespace issues there, if it may use the authority", (*site).testIssuers},
		{"certificate is renewed when it is time", (*site).testTime},
	} {
		if !t.Run(test.name, func(t *testing.T) {
			inside := *s
			inside.t = t
			test.run(&inside)
		}) {
			t.Logf("the log of the program:\n%s", s.ra.Log)
			return
		}
	}
}

// secret returns a Secret's key and chain, verified with its own ca.crt.
func (s *site) secret(name, dnsName string) tls.Certificate {
	s.t.Helper()
	return s.secretIn("shop", name, dnsName)
}

func (s *site) secretIn(namespace, name, dnsName string) tls.Certificate {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	await(s, "the Secret is there", secret, func(s *corev1.Secret) bool { return len(s.Data["tls.crt"]) > 0 })
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	must(s.t, err)
	roots, err := pki.ParseBundle(secret.Data["ca.crt"])
	must(s.t, err)
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		must(s.t, err)
		between.AddCert(cert)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: dnsName, Roots: roots.Pool(), Intermediates: between})
	must(s.t, err)
	return pair
}

// renew has cert-manager renew a Certificate, as cmctl does.
func (s *site) renew(c *cmapi.Certificate) {
	s.t.Helper()
	kubetest.Await(s.t, "the renewal begins", func(ctx context.Context) (bool, error) {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return false, err
		}
		cmutil.SetCertificateCondition(c, c.Generation, cmapi.CertificateConditionIssuing, cmmeta.ConditionTrue, "ManuallyTriggered", "by the test")
		err := s.client.Status().Update(ctx, c)
		return err == nil, err
	})
}

func (s *site) testRenewal() {
	before := s.calls()
	c := certificate("web", web)
	s.create(c)
	await(s, "the Certificate is ready", c, certified(1))
	first := s.secret("web", web)
	s.renew(c)
	await(s, "the Certificate is renewed", c, certified(2))
	second := s.secret("web", web)
	if bytes.Equal(first.Certificate[0], second.Certificate[0]) {
		s.t.Error("the certificate is the same")
	}
	if calls := s.calls() - before; calls != 2 {
		s.t.Errorf("%d calls for two certificates", calls)
	}
}

// Whoever may create Certificates chooses their names, and cert-manager approves them all.
func (s *site) testNames() {
	before := s.calls()
	istiod := certificate("istiods-identity", web)
	istiod.Spec.URIs = []string{"spiffe://cluster.local/ns/istio-system/sa/istiod"}
	for refused, name := range map[*cmapi.Certificate]string{
		certificate("another-namespaces", "web.bank.apps.example.org"): "allows none like it",
		certificate("istiods-name", "istiod.istio-system.svc"):         "allows none like it",
		istiod:      "the policy fixes this namespace's names to",
		authority(): "isCA",
	} {
		s.create(refused)
		kubetest.Await(s.t, "the request of "+refused.Name+" fails", func(context.Context) (bool, error) {
			for _, r := range s.requests() {
				if why, message := reason(&r); r.Annotations[cmapi.CertificateNameKey] == refused.Name && why == cmapi.CertificateRequestReasonFailed {
					if !strings.Contains(message, name) || !cmutil.CertificateRequestIsApproved(&r) {
						s.t.Errorf("%s: %s, approved %t", refused.Name, message, cmutil.CertificateRequestIsApproved(&r))
					}
					return true, nil
				}
			}
			return false, nil
		})
	}
	if s.calls() != before {
		s.t.Error("the CA was asked")
	}
}

func authority() *cmapi.Certificate {
	c := certificate("authority", "ca.shop.apps.example.org")
	c.Spec.IsCA = true
	return c
}

// A request is retried as it is: no second one, no other key.
func (s *site) testAway() {
	before := s.calls()
	s.write("outage", "")
	c := certificate("patient", "patient.shop.apps.example.org")
	s.create(c)
	var waiting cmapi.CertificateRequest
	kubetest.Await(s.t, "the request waits for the CA", func(context.Context) (bool, error) {
		for _, r := range s.requests() {
			if why, message := reason(&r); r.Annotations[cmapi.CertificateNameKey] == c.Name && why == cmapi.CertificateRequestReasonPending && strings.Contains(message, "the authority is away") {
				waiting = r
				return true, nil
			}
		}
		return false, nil
	})
	must(s.t, os.Remove(filepath.Join(s.folder, "outage")))
	await(s, "the Certificate is ready", c, certified(1))
	s.secret("patient", "patient.shop.apps.example.org")
	issued := await(s, "its request is issued", waiting.DeepCopy(), func(r *cmapi.CertificateRequest) bool { return len(r.Status.Certificate) > 0 })
	if issued.UID != waiting.UID || !bytes.Equal(issued.Spec.Request, waiting.Spec.Request) || s.calls()-before != 1 {
		s.t.Errorf("another request or key, or %d calls", s.calls()-before)
	}
}

// The issuer says what is wrong, and is ready again by itself.
func (s *site) testRejected() {
	s.write("accept", "another token")
	c := certificate("rejected", "rejected.shop.apps.example.org")
	s.create(c)
	await(s, "the issuer is not ready", clusterIssuer(), func(i *v1alpha1.CountersignClusterIssuer) bool {
		status, message := says(i)
		return status == metav1.ConditionFalse && strings.Contains(message, "this token is not accepted")
	})
	must(s.t, os.Remove(filepath.Join(s.folder, "accept")))
	await(s, "the Certificate is ready", c, certified(1))
	await(s, "the issuer is ready", clusterIssuer(), isReady)
}

// cert-manager asks for 90 days, gets seconds, and renews by the part that is left of the actual
// life: a twentieth here, as the third that is usual is over at once where the start is backdated.
func (s *site) testTime() {
	const name = "web.brief.apps.example.org"
	c := certificate("web", name)
	c.Namespace, c.Spec.RenewBeforePercentage = "brief", new(int32(5))
	s.create(c)
	await(s, "the Certificate is ready", c, func(c *cmapi.Certificate) bool { return certified(1)(c) && c.Status.RenewalTime != nil })
	due, first := c.Status.RenewalTime.Time, s.secretIn("brief", "web", name)
	await(s, "the Certificate is renewed", c, certified(2))
	if early := time.Until(due); early > 0 {
		s.t.Errorf("it was renewed %s before it was due", early)
	}
	second := s.secretIn("brief", "web", name)
	if bytes.Equal(first.Certificate[0], second.Certificate[0]) || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		s.t.Errorf("the first ends %s, the next %s", first.Leaf.NotAfter, second.Leaf.NotAfter)
	}
}

func (s *site) testIssuers() {
	good, bad := issuer("ca"), issuer("ca")
	bad.Namespace = "bank"
	s.create(good, bad)
	await(s, "the issuer of a namespace that is listed is ready", good, isReady)
	await(s, "the issuer of another namespace is not", bad, func(i *v1alpha1.CountersignIssuer) bool {
		status, message := says(i)
		return status == metav1.ConditionFalse && strings.Contains(message, "use no authority of that name")
	})
	served := certificate("by-the-issuer", "own.shop.apps.example.org")
	served.Spec.IssuerRef.Kind = "CountersignIssuer"
	s.create(served)
	await(s, "its Certificate is ready", served, certified(1))
	s.secret("by-the-issuer", "own.shop.apps.example.org")

	before := s.calls()
	c := certificate("banks", "web.bank.apps.example.org")
	c.Namespace, c.Spec.IssuerRef.Kind = "bank", "CountersignIssuer"
	s.create(c)
	kubetest.Await(s.t, "its request waits for the issuer", func(ctx context.Context) (bool, error) {
		var all cmapi.CertificateRequestList
		err := s.client.List(ctx, &all)
		for _, r := range all.Items {
			if _, message := reason(&r); r.Namespace == "bank" && strings.Contains(message, "Waiting for issuer to become ready") {
				return true, nil
			}
		}
		return false, err
	})
	if s.calls() != before {
		s.t.Error("the CA was asked")
	}
}
