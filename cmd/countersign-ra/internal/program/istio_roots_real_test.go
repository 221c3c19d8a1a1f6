//go:build e2e && linux

package program

import (
	"context"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// lives is the life of each certificate. A new root waits for as long once it is everywhere.
const lives = 10 * time.Second

// rotating is a configuration for a mesh whose certificates are short. An authority that signs below
// a root that is not trusted yet is held back for an hour, so that only the phases let it go on.
const rotating = `
cluster: {id: home, kubeconfig: DIR/kube.yaml}
dev: true
providers: [{name: file, accept_longer_ttl: true, settings: {dir: CA, self_signed: true, poll_interval: 100ms, max_ttl: 10s}}]
authorities: [{name: file, limits: {rate: 1000}, roots: {wait: 1s, unplanned: 1h, interval: 1s}}]
istio: {listen: "127.0.0.1:0", certificate: {dns_names: [countersign-ra.countersign.svc]}}
mesh:
  roots: {enabled: true, namespaces: "kubernetes.io/metadata.name in (shop,bank,istio-system)"}
  istiod: {enabled: true}
rules:
- name: mesh
  max_ttl: 10s
  match: {requests: [istio], namespaces: [shop]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
budget: {holder: 10000, holder_every: 1ms}
audit: {file: DIR/audit.log}
leader_election: {duration: 5s}
status: {address: 'unix:DIR/page'}
`

// rootChange is a change of the CA's root in a mesh.
type rootChange struct {
	*testing.T
	realm
	ca        string // its folder
	old, next *certtest.Pair
}

func (c *rootChange) replica() *replica {
	c.Helper()
	dir := files(c.T, nil, strings.ReplaceAll(rotating, "CA,", c.ca+","))
	write(c.T, filepath.Join(dir, "kube.yaml"), c.kubeconfig())
	cmd := exec.Command(programs.Path(c.T, "countersign-ra"), "serve", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Env = append(proctest.Environ(dir), "COUNTERSIGN_PROVIDER_PATH="+programs.Folder(c.T, "countersign-provider-file"))
	return launch(c.T, dir, cmd)
}

// write replaces a file of the CA at once.
func (c *rootChange) write(name string, content []byte) {
	c.Helper()
	path := filepath.Join(c.ca, name)
	write(c.T, path+".new", string(content))
	if err := os.Rename(path+".new", path); err != nil {
		c.Fatal(err)
	}
}

// published returns the roots in a namespace, none if it has no ConfigMap or somebody else's.
func (c *rootChange) published(namespace string) *pki.Bundle {
	c.Helper()
	m, err := c.Client().CoreV1().ConfigMaps(namespace).Get(c.Context(), meshroots.Name, metav1.GetOptions{})
	if err != nil {
		return pki.NewBundle()
	}
	roots, _ := pki.ParseBundle([]byte(m.Data[meshroots.Key]))
	return roots
}

// ofIstiod returns the roots in istiod's Secret.
func (c *rootChange) ofIstiod() *pki.Bundle {
	c.Helper()
	s, err := c.Client().CoreV1().Secrets("istio-system").Get(c.Context(), istiodtls.Name, metav1.GetOptions{})
	if err != nil {
		return pki.NewBundle()
	}
	roots, _ := pki.ParseBundle(s.Data["ca.crt"])
	return roots
}

func (c *rootChange) everywhere(roots *pki.Bundle, namespaces ...string) func() bool {
	return func() bool {
		for _, namespace := range namespaces {
			if !c.published(namespace).Equal(roots) {
				return false
			}
		}
		return c.ofIstiod().Equal(roots)
	}
}

func (c *rootChange) below(root *certtest.Pair, leaf *x509.Certificate) bool {
	return leaf.CheckSignatureFrom(root.Cert) == nil
}

// The old root, both everywhere, leaves below the new one, and the old one goes last, whatever
// the CA does and whoever leads. The CA signs below its new root from the beginning, and one
// namespace cannot be written: nobody gets a certificate below a root that is not everywhere.
func TestRealMeshChangesItsRoot(t *testing.T) {
	c := &rootChange{T: t, realm: newRealm(t, "home"), ca: filepath.Join(proctest.Folder(t), "ca"), next: certtest.Root(t)}
	user := c.ServiceAccount("countersign", "countersign-ra")
	c.Bind("", user, rulesIn(t, "mesh/mesh.yaml")...)
	c.Bind("", user, rulesIn(t, "istiod/istiod.yaml")...)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: meshroots.Name}, Data: map[string]string{meshroots.Key: "theirs"}}
	if _, err := c.Client().CoreV1().ConfigMaps("bank").Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web, api := c.bound(c.pod("shop", "web", "web-0", "n1")), c.bound(c.pod("shop", "api", "api-0", "n1"))
	leader := c.replica()
	leader.until(t, "it is ready", func() bool { return leader.readyz() == http.StatusOK && leader.report(t).Leader.Leading })
	other := c.replica()
	other.until(t, "it is ready", func() bool { return other.readyz() == http.StatusOK })
	oldCert, err := pki.ParseCertificates([]byte(read(t, filepath.Join(c.ca, "root-cert.pem"))))
	if err != nil {
		t.Fatal(err)
	}
	c.old = &certtest.Pair{Cert: oldCert[0]}
	before, both, after := pki.NewBundle(c.old.Cert), pki.NewBundle(c.old.Cert, c.next.Cert), pki.NewBundle(c.next.Cert)

	doors := map[string]*replica{"the leader": leader, "the other": other}
	callers, last := map[string]caller{}, time.Time{}
	for name, r := range doors {
		callers[name] = as(t, r.dial(t, both.PEM()), web, "")
		callers[name].gets(nil, webID)
		leaf, roots, err := callers[name].obtain(nil)
		if err != nil || !c.below(c.old, leaf) || !roots.Equal(before) {
			t.Fatalf("%s: %v", name, err)
		}
		last = leaf.NotAfter
	}
	leader.until(t, "all have the old root", c.everywhere(before, "shop", "istio-system"))

	key, err := pki.EncodeKey(c.next.Key)
	if err != nil {
		t.Fatal(err)
	}
	c.write("root-cert.pem", both.PEM())
	leader.until(t, "all that can have both roots", c.everywhere(both, "shop", "istio-system"))
	c.write("ca-key.pem", key)
	c.write("ca-cert.pem", after.PEM())
	held := make(chan error, len(doors)) // a call is held for some seconds
	for _, by := range callers {
		go func() {
			for {
				leaf, _, err := by.obtain(nil)
				if err != nil || c.below(c.next, leaf) {
					held <- err
					return
				}
			}
		}()
	}
	for range doors {
		if err := <-held; grpcstatus.Code(err) != codes.Unavailable {
			t.Errorf("a certificate below a root that a namespace lacks: %v", err)
		}
	}
	leader.kills = true
	leader.Kill()
	written := time.Now()
	if err := c.Client().CoreV1().ConfigMaps("bank").Delete(t.Context(), meshroots.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other.until(t, "all have both roots", c.everywhere(both, "shop", "istio-system", "bank"))
	caller := as(t, other.dial(t, both.PEM()), api, "") // one that is not told to wait
	other.until(t, "there are certificates below the new root", func() bool {
		leaf, roots, err := caller.obtain(nil)
		if err != nil && grpcstatus.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		if err != nil {
			return false
		}
		if !c.below(c.next, leaf) || !roots.Equal(both) {
			t.Fatalf("it is below another root, or has %d", roots.Len())
		}
		return true
	})
	if waited := time.Since(written); waited < lives {
		t.Errorf("the first came %s after it was everywhere at the earliest", waited)
	}
	if !c.everywhere(both, "shop", "istio-system", "bank")() {
		t.Error("not all have both roots while there are certificates below each")
	}

	told := time.Now() // at the earliest
	c.write("root-cert.pem", after.PEM())
	other.until(t, "the old root is gone", c.everywhere(after, "shop", "istio-system", "bank"))
	if now := time.Now(); now.Before(last) || now.Sub(told) < lives {
		t.Errorf("it was gone %s after it was notified no more", now.Sub(told))
	}
	other.until(t, "replies have the new root alone", func() bool {
		leaf, roots, err := caller.obtain(nil)
		return err == nil && c.below(c.next, leaf) && roots.Equal(after)
	})
	kubetest.Await(t, "istiod's certificate is below the new root", func(context.Context) (bool, error) {
		s, err := c.Client().CoreV1().Secrets("istio-system").Get(t.Context(), istiodtls.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		chain, err := pki.ParseCertificates(s.Data["tls.crt"])
		return err == nil && c.below(c.next, chain[0]), err
	})
}
