//go:build e2e

package real_test

import (
	"cmp"
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"strconv"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// attack is a request that is not what it seems. Its default is the genuine one of the pod.
type attack struct {
	name   string
	pod    string
	change func(a *arena, r *certificatesv1.PodCertificateRequest)
	// refused is what the API server says. If it accepts the request, its status says:
	refused                    string
	condition, reason, message string // none while it stays pending
}

const (
	issued = certificatesv1.PodCertificateRequestConditionTypeIssued
	denied = certificatesv1.PodCertificateRequestConditionTypeDenied
	failed = certificatesv1.PodCertificateRequestConditionTypeFailed
)

// What a node cannot do, whatever a signer does.
var byNode = []attack{
	{name: "a pod of another node", pod: "elsewhere", change: nodeOne, refused: "is not running on node"},
	{name: "as another node", pod: "elsewhere", refused: "which is not the requesting node"},
	{name: "another pod's UID", change: podUID, refused: "differs from running pod"},
	{name: "another account", change: otherAccount, refused: "differs from running pod"},
	{name: "an account that was made anew", change: staleAccount, refused: "differs from the running service account"},
	{name: "a node that was made anew", change: nodeUID, refused: "inconsistent with the running node"},
	{name: "a deleted pod", pod: "deleted", refused: "not found"},
	{name: "a mirror pod", pod: "mirror", refused: "is a mirror pod"},
	{name: "a pod in another namespace", change: namespace("bank"), refused: "not found"},
	{name: "a pod without such a volume", pod: "plain", refused: "does not mount a podCertificate projected volume for signer"},
	{name: "a signer that its pod did not name", change: signerName("example.org/other"), refused: "does not mount a podCertificate projected volume for signer"},
}

// What comes of requests by a user who may create them, and whom no NodeRestriction holds. What
// is wrong about an object that is younger than the request, or nearly so, stays pending: it
// may have been made anew meanwhile.
var byLiar = []attack{
	{name: "another pod's UID", change: podUID},
	{name: "an account that was made anew", change: staleAccount},
	{name: "a node that was made anew", change: nodeUID},
	{name: "a deleted pod", pod: "deleted"},
	{name: "a pod in another namespace", change: namespace("bank")},
	{name: "a signer that is not ours", change: signerName("example.org/other")},
	{name: "another account", change: otherAccount, condition: denied, reason: "IdentityMismatch", message: `runs as the service account "web"`},
	{name: "another node", pod: "elsewhere", change: nodeOne, condition: denied, reason: "IdentityMismatch", message: `is on the node "two"`},
	{name: "a finished pod", pod: "finished", condition: denied, reason: "PodNotEligible", message: "is finished"},
	{name: "a mirror pod", pod: "mirror", condition: denied, reason: "PodNotEligible", message: "is a mirror pod"},
	{name: "a pod that no rule is for", pod: "stranger", condition: denied, reason: "NotPermitted", message: "no rule matches"},
	{name: "an annotation", change: annotation("example.org/dns-names"), condition: denied, reason: "InvalidUnverifiedUserAnnotations", message: "example.org/dns-names"},
	{name: "a key that the rule does not allow", change: edwards, condition: denied, reason: "UnsupportedKeyType", message: "ed25519"},
	{name: "an e-mail address", change: withNames(&x509.CertificateRequest{EmailAddresses: []string{"admin@example.org"}}), condition: failed, reason: "InvalidCertificateSigningRequest"},
	{name: "a certificate to sign code", change: withNames(&x509.CertificateRequest{ExtraExtensions: toSignCode}), condition: failed, reason: "InvalidCertificateSigningRequest", message: "extended key usage"},
	// The names are not what is issued, as checkNames shows.
	{name: "a DNS name", change: withNames(&x509.CertificateRequest{DNSNames: []string{"admin.bank.svc"}}), condition: issued},
	{name: "the rights of an administrator", change: withNames(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}}), condition: issued},
}

// What the API server itself refuses, whoever asks.
var byServer = []attack{
	{name: "what is no CSR", change: rawCSR([]byte("no CSR")), refused: "must be a valid PKCS#10 CSR"},
	{name: "a forged signature", change: forged, refused: "invalid signature"},
	{name: "a huge CSR", change: huge, refused: "may not be more than 10240"},
	{name: "an RSA key of 2048 bits", change: rsaKey, refused: "RSA keys must have modulus size 3072 or 4096"},
	{name: "a P-224 key", change: curve(elliptic.P224()), refused: "elliptic public keys must use curve"},
	{name: "no key", change: rawCSR(nil), refused: "exactly one of"},
	{name: "less than an hour", change: seconds(3599), refused: "must be in the range"},
	{name: "more than 91 days", change: seconds(91*24*60*60 + 1), refused: "must be in the range"},
	{name: "an annotation that is no key", change: annotation("no key!"), refused: "unverifiedUserAnnotations"},
	{name: "no pod", change: func(_ *arena, r *certificatesv1.PodCertificateRequest) { r.Spec.PodName = "" }, refused: "spec.podName"},
}

func TestRealAttackersGetNothing(t *testing.T) {
	a := newArena(t)
	a.dropPolicy() // it would refuse whatever a user asks for
	for _, group := range []struct {
		who     string
		client  kubernetes.Interface
		attacks []attack
	}{
		{"a node", a.node, byNode}, {"a user", a.user, byServer}, {"a liar", a.user, byLiar},
	} {
		for _, x := range group.attacks {
			t.Run(group.who+" asks for "+x.name, func(t *testing.T) { a.try(t, group.client, x) })
		}
	}
	a.checkPending()
	a.checkNames()
}

// checkPending reports requests that should wait for ever, and do not, when one that came after
// them has its certificate.
func (a *arena) checkPending() {
	a.t.Helper()
	a.checkIssued()
	for _, r := range a.pending {
		now, err := a.Client().CertificatesV1().PodCertificateRequests(r.Namespace).Get(a.t.Context(), r.Name, metav1.GetOptions{})
		must(a.t, err)
		if kind, c := outcome(now); kind != "" {
			a.t.Errorf("the request for pod %s of signer %s is %s: %s", r.Spec.PodName, r.Spec.SignerName, kind, c.Message)
		}
	}
}

// checkNames reports certificates with names that no rule gives, and calls that ask for some.
func (a *arena) checkNames() {
	a.t.Helper()
	const id, name = "spiffe://example.org/ns/shop/sa/web", "web.shop.svc"
	for _, r := range a.ca.Requests() {
		if r.SubjectID != id || !slices.Equal(r.DNSNames, []string{name}) {
			a.t.Errorf("the CA was asked for %q and %q", r.SubjectID, r.DNSNames)
		}
	}
	for _, r := range a.requests() {
		block, _ := pem.Decode([]byte(r.Status.CertificateChain))
		if block == nil {
			continue
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		must(a.t, err)
		if got := leaf.Subject.String(); got != "" || !slices.Equal(leaf.DNSNames, []string{name}) || len(leaf.URIs) != 1 || leaf.URIs[0].String() != id || len(leaf.EmailAddresses) > 0 {
			a.t.Errorf("a certificate is for subject %q and names %q, %q, %q", got, leaf.DNSNames, leaf.URIs, leaf.EmailAddresses)
		}
	}
}

// checkIssued reports a genuine request that gets no certificate.
func (a *arena) checkIssued() {
	a.t.Helper()
	a.awaitIssued(a.askFor(a.node, a.targets["web"]))
}

// awaitRefusal returns when the API server refuses an attempt with these words. What it looks
// up may be a moment old.
func awaitRefusal(t *testing.T, words string, attempt func(context.Context) error) {
	t.Helper()
	kubetest.Await(t, "the API server does not say "+strconv.Quote(words), func(ctx context.Context) (bool, error) {
		err := attempt(ctx)
		return err != nil && strings.Contains(err.Error(), words), err
	})
}

// try makes the request, and compares what comes of it.
func (a *arena) try(t *testing.T, client kubernetes.Interface, x attack) {
	t.Helper()
	request := a.CertificateRequest(a.targets[cmp.Or(x.pod, "web")], signer)
	if x.change != nil {
		x.change(a, request)
	}
	all := client.CertificatesV1().PodCertificateRequests(request.Namespace)
	if x.refused != "" {
		awaitRefusal(t, x.refused, func(ctx context.Context) error {
			_, err := all.Create(ctx, request, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
		return
	}
	made, err := all.Create(t.Context(), request, metav1.CreateOptions{})
	must(t, err)
	if x.condition == "" {
		a.pending = append(a.pending, made)
		return
	}
	if got := a.awaitOutcome(t, made); got.Type != x.condition || got.Reason != cmp.Or(x.reason, x.condition) || !strings.Contains(got.Message, x.message) {
		t.Errorf("it is %s: %s: %q, want %s: %s: %q", got.Type, got.Reason, got.Message, x.condition, x.reason, x.message)
	}
}
