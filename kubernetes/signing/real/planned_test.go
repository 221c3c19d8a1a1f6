//go:build e2e && linux && long

package real_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// forAccounts gives them certificates of ten minutes: those of pods live for an hour at least, and
// the old root as long as these.
const forAccounts = podRule + `
- name: accounts
  match: {requests: [certificate-requests], kinds: [service_account], namespaces: [shop]}
  names: {spiffe_id: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}"}
`

// An operator gives the CA a new root as docs/pod-certificates.md says: told first, signed under when
// it is trusted, the old one told no more. The program is killed while the new one waits.
func TestRealLongPlannedRotation(t *testing.T) {
	t.Parallel()
	r := openRotation(t)
	r.write("root-cert.pem", r.old.Union(r.next).PEM())
	within(t, 5*time.Minute, "the pod has not both roots", func() bool { return r.roots().Equal(r.old.Union(r.next)) })
	arrived := r.note("the running pod has both roots")
	before := r.phase(r.next, "waiting")
	r.replica.kill()
	r.serve()
	if after := r.phase(r.next, "waiting"); !after.Since.Equal(before.Since) || !after.Until.Equal(before.Until) {
		t.Errorf("the next leader has the new root wait from %s to %s, the last one from %s to %s", after.Since, after.Until, before.Since, before.Until)
	}
	// Not before the restart: recorded ends are rounded up to five minutes.
	last := r.leaf()
	r.expect(last, r.old)
	trusted := r.phase(r.next, "trusted")
	r.note("the new root is trusted")
	if waited := trusted.Since.Sub(before.Since); waited < 10*time.Minute {
		t.Errorf("it waited for %s", waited)
	}

	r.write("ca-key.pem", r.key)
	r.write("ca-cert.pem", r.next.PEM())
	within(t, time.Minute, "the CA does not sign below its new root", func() bool {
		leaf := r.leaf()
		if signed(r.old, leaf) {
			last = leaf
		}
		return signed(r.next, leaf)
	})
	r.note("the CA signs below the new root")
	fresh := r.CreatePod(kubetest.CertificatePod("shop", "fresh", "web", "one", signer))
	r.AwaitRunning(fresh)
	r.checkFiles(fresh)
	r.checkFirst(arrived)

	r.write("root-cert.pem", r.next.PEM())
	r.phase(r.old, "withdrawn")
	if got := r.roots(); got.Len() != 2 {
		t.Errorf("certificates below the old root live until %s, and the running pod has %v", last.NotAfter, got.Fingerprints())
	}
	within(t, 20*time.Minute, "the pod has the old root still", func() bool { return r.roots().Equal(r.next) })
	r.note("the old root is gone")
	if left := time.Until(last.NotAfter); left > 0 {
		t.Errorf("the last certificate below it lives for %s", left)
	}
	r.checkFiles(fresh)
}

// rotation is a deployment whose operator replaces the CA of the provider file.
type rotation struct {
	*deployment
	began     time.Time
	replicas  []*replica
	replica   *replica             // the last one
	account   kubernetes.Interface // asks for certificates
	node      *kubetest.Node
	reader    *corev1.Pod // has the trust bundle alone
	old, next *pki.Bundle
	key       []byte // of the new root
}

func openRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{deployment: deploy(t, kubetest.Start(t, kubetest.Options{Nodes: true}), "requests", "approval"), began: time.Now()}
	r.rules, r.signing = forAccounts, "enabled: true, approve: true"
	r.serve()
	next := certtest.SelfSigned(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "next"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	r.next = pki.NewBundle(next.Cert)
	var err error
	r.key, err = pki.EncodeKey(next.Key)
	must(t, err)
	user := r.ServiceAccount("shop", "web")
	r.Bind("", user, rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}})
	r.account = r.ClientFor(r.Account("shop", "web"))
	r.node = r.HollowNode("one")
	reader := kubetest.CertificatePod("shop", "reader", "web", "one", signer)
	reader.Spec.Volumes[0].Projected.Sources = reader.Spec.Volumes[0].Projected.Sources[1:]
	r.reader = r.CreatePod(reader)
	r.AwaitRunning(r.reader)
	r.old = r.roots() // the provider has made it
	return r
}

// serve starts a replica and returns when it leads.
func (r *rotation) serve() {
	r.t.Helper()
	r.replica = r.start(shipped)
	r.replica.awaitLeading()
	r.replicas = append(r.replicas, r.replica)
}

func (r *rotation) note(what string) time.Time {
	r.t.Helper()
	r.t.Logf("%8s: %s", time.Since(r.began).Round(time.Second), what)
	return time.Now()
}

// write replaces a file of the CA.
func (r *rotation) write(name string, content []byte) {
	r.t.Helper()
	write(r.t, r.folder, "new", string(content))
	must(r.t, os.Rename(filepath.Join(r.folder, "new"), filepath.Join(r.folder, name)))
	r.note("the operator has replaced " + name)
}

// roots returns those in the file of the running pod.
func (r *rotation) roots() *pki.Bundle {
	r.t.Helper()
	text, err := r.node.ReadFile(r.reader, kubetest.CertificateVolume, kubetest.RootsFile)
	must(r.t, err)
	roots, err := pki.ParseBundle(text)
	must(r.t, err)
	return roots
}

// phase returns what the program says of a root when it is in that phase.
func (r *rotation) phase(root *pki.Bundle, want string) (found rootStatus) {
	r.t.Helper()
	within(r.t, 15*time.Minute, "a root is not "+want, func() bool {
		s, err := r.replica.status(r.t.Context())
		found = s.root(root.Fingerprints()[0])
		return err == nil && found.Phase == want
	})
	return found
}

// leaf returns a certificate of ten minutes.
func (r *rotation) leaf() (leaf *x509.Certificate) {
	r.t.Helper()
	request := with(r.t, nil)
	request.Spec.ExpirationSeconds = new(int32(600))
	all := r.account.CertificatesV1().CertificateSigningRequests()
	made, err := all.Create(r.t.Context(), request, metav1.CreateOptions{})
	must(r.t, err)
	kubetest.Await(r.t, "the request has no certificate", func(ctx context.Context) (bool, error) {
		now, err := r.Client().CertificatesV1().CertificateSigningRequests().Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil || len(now.Status.Certificate) == 0 {
			return false, fmt.Errorf("%v, %w", now.Status.Conditions, err)
		}
		chain, err := pki.ParseCertificates(now.Status.Certificate)
		must(r.t, err)
		leaf = chain[0]
		return true, nil
	})
	return leaf
}

func (r *rotation) expect(leaf *x509.Certificate, root *pki.Bundle) {
	r.t.Helper()
	if !signed(root, leaf) {
		r.t.Errorf("a certificate is signed by %s, want %s", leaf.Issuer, root.Certificates()[0].Subject)
	}
}

// signed reports whether the leaf is directly below the root.
func signed(root *pki.Bundle, leaf *x509.Certificate) bool {
	return leaf.CheckSignatureFrom(root.Certificates()[0]) == nil
}

// checkFiles verifies a pod's certificate, which is below the new root, with the files of both pods.
func (r *rotation) checkFiles(pod *corev1.Pod) {
	r.t.Helper()
	own := r.files(r.node, pod)
	leaf := own.pair(r.t)[0].Leaf
	r.expect(leaf, r.next)
	for name, pool := range map[string]*x509.CertPool{"its own": own.pool(r.t), "the other's": r.roots().Pool()} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			r.t.Errorf("by %s roots: %v", name, err)
		}
	}
}

// checkFirst compares the first certificate below the new root with when that arrived at the pod.
func (r *rotation) checkFirst(arrived time.Time) {
	r.t.Helper()
	below := 0
	for _, replica := range r.replicas {
		for _, a := range replica.audit() {
			if a.Event != "issued" || a.Root != r.next.Fingerprints()[0] {
				continue
			}
			if below++; a.Time.Before(arrived) {
				r.t.Errorf("a certificate below the new root is from %s, and the root arrived at %s", a.Time, arrived)
			}
		}
	}
	if below == 0 {
		r.t.Error("the audit logs have no certificate below the new root")
	}
}
