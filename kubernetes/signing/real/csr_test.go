//go:build e2e

package real_test

import (
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
)

type signingRequest = certificatesv1.CertificateSigningRequest

// desk is a cluster with those who make CertificateSigningRequests.
type desk struct {
	*registrar
	account, node, mallory kubernetes.Interface
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{registrar: open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})}
	d.Node("one")
	user := d.ServiceAccount("shop", "web")
	d.account, d.node, d.mallory = d.ClientFor(d.Account("shop", "web")), d.ClientFor(d.NodeUser("one")), d.ClientFor(d.User("mallory"))
	create := rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}}
	write := rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests/status", "certificatesigningrequests/approval"}, Verbs: []string{"update"}}
	d.Bind("", user, create)
	d.Bind("", "mallory", create, write)
	return d
}

// with returns a request with that CSR, for the account's name unless the change gives another.
func with(t testing.TB, change func(*x509.CertificateRequest)) *signingRequest {
	t.Helper()
	template := &x509.CertificateRequest{URIs: []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/ns/shop/sa/web"}}}
	if change != nil {
		change(template)
	}
	return &signingRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Request: pemCSR(kubetest.CSR(t, ecdsaKey(t, elliptic.P256()), template)),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

func pemCSR(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// wrong are changes of an account's request, and what comes of each.
var wrong = map[string]struct {
	csr     func(*x509.CertificateRequest)
	change  func(t *testing.T, r *signingRequest)
	refused string // by the API server
	denied  string // the reason
	failed  string // the reason, after the approval
}{
	"another's name":           {csr: func(c *x509.CertificateRequest) { c.URIs[0].Path = "/ns/shop/sa/admin" }, denied: "NamesNotPermitted"},
	"a name more":              {csr: func(c *x509.CertificateRequest) { c.DNSNames = []string{"web.shop.svc"} }, denied: "NamesNotPermitted"},
	"no name":                  {csr: func(c *x509.CertificateRequest) { c.URIs = nil }, denied: "NamesNotPermitted"},
	"a common name":            {csr: func(c *x509.CertificateRequest) { c.Subject.CommonName = "web" }, denied: "SubjectNotAllowed"},
	"an administrator's group": {csr: func(c *x509.CertificateRequest) { c.Subject = pkix.Name{Organization: []string{"system:masters"}} }, denied: "SubjectNotAllowed"},
	"a CA's usage": {change: func(_ *testing.T, r *signingRequest) {
		r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageCertSign)
	}, denied: "UsagesNotPermitted"},
	"a CSR to sign code": {csr: func(c *x509.CertificateRequest) { c.ExtraExtensions = toSignCode }, denied: "UsagesNotPermitted"},
	"a forged signature": {change: func(t *testing.T, r *signingRequest) {
		block, _ := pem.Decode(r.Spec.Request)
		block.Bytes[len(block.Bytes)-1] ^= 1
		r.Spec.Request = pemCSR(block.Bytes)
	}, refused: "spec.request"},
	"a huge CSR": {csr: func(c *x509.CertificateRequest) {
		c.DNSNames = slices.Repeat([]string{strings.Repeat("a", 60) + ".example.org"}, 1000)
	}, denied: "InvalidCertificateSigningRequest"},
	"a key that the rule does not allow": {change: func(t *testing.T, r *signingRequest) {
		r.Spec.Request = pemCSR(kubetest.CSR(t, ecdsaKey(t, elliptic.P384()), &x509.CertificateRequest{URIs: []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/ns/shop/sa/web"}}}))
	}, denied: "UnsupportedKeyType"},
	"another signer": {change: func(_ *testing.T, r *signingRequest) { r.Spec.SignerName = "example.org/other" }},
	"no approval":    {change: func(_ *testing.T, r *signingRequest) { r.Spec.SignerName = byHand }},
	"no CSR":         {change: func(_ *testing.T, r *signingRequest) { r.Spec.Request = []byte("no CSR") }, refused: "spec.request"},
	"10 minutes less a second": {change: func(_ *testing.T, r *signingRequest) {
		seconds := int32(599)
		r.Spec.ExpirationSeconds = &seconds
	}, refused: "may not specify a duration less than 600 seconds"},
	"a usage that is none": {change: func(_ *testing.T, r *signingRequest) { r.Spec.Usages = []certificatesv1.KeyUsage{"everything"} }, refused: "spec.usages"},
}

func TestRealWrongSigningRequestsGetNothing(t *testing.T) {
	d := newDesk(t)
	var pending []*signingRequest
	for name, x := range wrong {
		t.Run(name, func(t *testing.T) {
			r := with(t, x.csr)
			if x.change != nil {
				x.change(t, r)
			}
			made, err := d.account.CertificatesV1().CertificateSigningRequests().Create(t.Context(), r, metav1.CreateOptions{})
			switch {
			case x.refused != "":
				if err == nil || !strings.Contains(err.Error(), x.refused) {
					t.Errorf("the API server says %v, want %q", err, x.refused)
				}
			case err != nil:
				t.Error(err)
			case x.denied != "":
				d.awaitState(t, made, "Denied: "+x.denied)
			case x.failed != "":
				d.awaitState(t, made, "Approved: CountersignPolicy, Failed: "+x.failed)
			default:
				pending = append(pending, made)
			}
		})
	}
	d.checkSigned(d.account, nil)
	for _, r := range pending {
		if got := d.state(t, r); got != "" {
			t.Errorf("the request of signer %s is %q", r.Spec.SignerName, got)
		}
	}
	if n := len(d.ca.Requests()); n != 1 {
		t.Errorf("the CA was asked %d times, want once, for the genuine request", n)
	}
}

// Who asks is what the API server says, and never what the request says.
func TestRealSigningRequestsAreForTheirRequester(t *testing.T) {
	d := newDesk(t)
	node := func(c *x509.CertificateRequest) { c.URIs, c.DNSNames = nil, []string{"one.nodes.example.org"} }
	d.checkSigned(d.account, nil)
	d.checkSigned(d.node, node)
	disguised := with(t, nil)
	disguised.Spec.Username, disguised.Spec.Groups = "system:serviceaccount:shop:web", []string{"system:serviceaccounts:shop"}
	for _, c := range []struct {
		name, reason string
		who          kubernetes.Interface
		request      *signingRequest
	}{
		{"a user without a rule", "NotPermitted", d.mallory, with(t, nil)},
		{"a user who says that he is an account", "NotPermitted", d.mallory, disguised},
		{"a node with an account's name", "NamesNotPermitted", d.node, with(t, nil)},
		{"an account with a node's name", "NamesNotPermitted", d.account, with(t, node)},
	} {
		made, err := c.who.CertificatesV1().CertificateSigningRequests().Create(t.Context(), c.request, metav1.CreateOptions{})
		must(t, err)
		d.awaitState(t, made, "Denied: "+c.reason)
	}
}

// An approval says that somebody wants it signed. The policy decides all the same.
func TestRealApprovalDoesNotOverruleThePolicy(t *testing.T) {
	d := newDesk(t)
	for name, x := range map[string]struct {
		csr  func(*x509.CertificateRequest)
		want string
	}{
		"a right one": {nil, "Approved: ByHand, issued"},
		"a wrong one": {func(c *x509.CertificateRequest) { c.URIs[0].Path = "/ns/shop/sa/admin" }, "Approved: ByHand, Failed: NamesNotPermitted"},
	} {
		t.Run(name, func(t *testing.T) {
			r := with(t, x.csr)
			r.Spec.SignerName = byHand
			made, err := d.account.CertificatesV1().CertificateSigningRequests().Create(t.Context(), r, metav1.CreateOptions{})
			must(t, err)
			must(t, approve(t.Context(), d.Client(), made))
			d.awaitState(t, made, x.want)
		})
	}
	request := with(t, nil)
	request.Spec.SignerName = byHand
	made, err := d.account.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{})
	must(t, err)
	awaitRefusal(t, "user not permitted to approve requests with signerName", func(ctx context.Context) error { return approve(ctx, d.mallory, made) })
	awaitRefusal(t, "user not permitted to sign requests with signerName", func(ctx context.Context) error {
		forged := made.DeepCopy()
		forged.Status.Certificate = d.ca.Bundle().PEM()
		_, err := d.mallory.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, forged, metav1.UpdateOptions{})
		return err
	})
}

func approve(ctx context.Context, client kubernetes.Interface, r *signingRequest) error {
	approved := r.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByHand",
	})
	_, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, approved, metav1.UpdateOptions{})
	return err
}

// checkSigned makes a genuine request and awaits its certificate.
func (d *desk) checkSigned(who kubernetes.Interface, csr func(*x509.CertificateRequest)) {
	d.t.Helper()
	made, err := who.CertificatesV1().CertificateSigningRequests().Create(d.t.Context(), with(d.t, csr), metav1.CreateOptions{})
	must(d.t, err)
	d.awaitState(d.t, made, "Approved: CountersignPolicy, issued")
}

func (d *desk) awaitState(t testing.TB, r *signingRequest, want string) {
	t.Helper()
	kubetest.Await(t, fmt.Sprintf("the request is not %q", want), func(context.Context) (bool, error) {
		got := d.state(t, r)
		return got == want, fmt.Errorf("it is %q", got)
	})
}

// state returns a request's conditions with their reasons, and whether it has a certificate.
func (d *desk) state(t testing.TB, r *signingRequest) string {
	t.Helper()
	now, err := d.Client().CertificatesV1().CertificateSigningRequests().Get(t.Context(), r.Name, metav1.GetOptions{})
	must(t, err)
	var parts []string
	for _, c := range now.Status.Conditions {
		parts = append(parts, string(c.Type)+": "+c.Reason)
	}
	if len(now.Status.Certificate) > 0 {
		parts = append(parts, "issued")
	}
	return strings.Join(parts, ", ")
}
