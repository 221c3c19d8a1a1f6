//go:build e2e && istio && linux

package program

import (
	"crypto/x509"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// istiod is istiod's own CA, with a key of its own in the files of the Secret cacerts. What istiod
// does beside signing, the test does: it writes the roots into the ConfigMap istio-ca-root-cert.
type istiod struct {
	*proctest.Process
	t       *testing.T
	home    realm
	dir     string
	root    *pki.Bundle
	address string
}

func startIstiod(t *testing.T, home realm) *istiod {
	t.Helper()
	key := certtest.Root(t)
	i := &istiod{t: t, home: home, dir: proctest.Folder(t), root: pki.NewBundle(key.Cert), address: "127.0.0.1:0"}
	cert := i.root.PEM()
	put(t, i.dir, map[string][]byte{"ca-key.pem": keyText(t, key), "ca-cert.pem": cert, "cert-chain.pem": cert})
	user := home.ServiceAccount("istio-system", "istiod")
	home.Bind("", user, rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}})
	write(t, filepath.Join(i.dir, "kube.yaml"), string(home.Kubeconfig(home.Account("istio-system", "istiod"))))
	i.publish(i.root)
	return i
}

// publish has istiod distribute roots, as docs/istio.md says: in cacerts, with a restart.
func (i *istiod) publish(roots *pki.Bundle) {
	i.t.Helper()
	if i.Process != nil {
		i.Stop(syscall.SIGTERM)
	}
	put(i.t, i.dir, map[string][]byte{"root-cert.pem": roots.PEM()})
	i.start()
	maps := i.home.Client().CoreV1().ConfigMaps("shop")
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: meshroots.Name, Labels: map[string]string{"istio.io/config": "true"}},
		Data:       map[string]string{meshroots.Key: string(roots.PEM())},
	}
	_, err := maps.Create(i.t.Context(), object, metav1.CreateOptions{FieldManager: "pilot-discovery"})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(i.t.Context(), object, metav1.UpdateOptions{FieldManager: "pilot-discovery"})
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

// start runs the CA at the address that it had.
func (i *istiod) start() {
	i.t.Helper()
	cmd := exec.Command(programs.Foreign(i.t, "COUNTERSIGN_ISTIO"), "ca")
	cmd.Dir = i.dir
	cmd.Env = append(proctest.Environ(i.dir), "ROOT_CA_DIR="+i.dir, "KUBECONFIG="+filepath.Join(i.dir, "kube.yaml"), "CA_LISTEN="+i.address, "CA_NAMES="+caAddress, "CLUSTER_ID=home")
	i.Process = proctest.Start(i.t, cmd)
	listens := regexp.MustCompile(`{"address":"(.*?)"}`)
	i.Until(i.t, patience, "istiod's CA listens", func() bool {
		at := listens.FindStringSubmatch(i.Log.String())
		if at != nil {
			i.address = at[1]
		}
		return at != nil
	})
}

// mounted writes what a pod that starts now has of the ConfigMap, and returns the file.
func mounted(t *testing.T, home realm) string {
	t.Helper()
	path := filepath.Join(proctest.Folder(t), meshroots.Key)
	write(t, path, string(published(t, home).PEM()))
	return path
}

// published returns the roots of the ConfigMap.
func published(t *testing.T, home realm) *pki.Bundle {
	t.Helper()
	object, err := home.Client().CoreV1().ConfigMaps("shop").Get(t.Context(), meshroots.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots, err := pki.ParseBundle([]byte(object.Data[meshroots.Key]))
	if err != nil {
		t.Fatal(err)
	}
	return roots
}

const ofMesh = `
mesh:
  roots: {enabled: true, namespaces: kubernetes.io/metadata.name=shop, FURTHER}
  istiod: {enabled: true}
`

// withVault is a configuration for a mesh whose CA is Vault.
func withVault(v *vault) string {
	return strings.NewReplacer(
		"{name: file, accept_longer_ttl: true, settings: {dir: CA, self_signed: true, poll_interval: 100ms}}", v.provider(), "authorities: [{name: file,", "authorities: [{name: vault,",
	).Replace(forEnvoys)
}

// A mesh moves from istiod's CA to countersign-ra with Vault, for good, and back, as docs/istio.md
// says. Its pods have Istio's agent or ours, and talk to each other at each step.
func TestRealIstioMeshMovesFromIstiodsCAAndBack(t *testing.T) {
	t.Parallel()
	home, own := newRealm(t, "home"), startVault(t)
	user := home.ServiceAccount("countersign", "countersign-ra")
	home.Bind("", user, append(rulesIn(t, "mesh/mesh.yaml"), rulesIn(t, "istiod/istiod.yaml")...)...)
	former := startIstiod(t, home)
	b, f := newBalancer(t), &traffic{}
	stock, ours := istioAgent(), ourAgent("--set", "providers.citadel.root_overlap=3s")
	formerly := caOf{former.address, mounted(t, home)}
	before := []*sidecar{startSidecarWith(t, stock, home, formerly, "web", "web-1"), startSidecarWith(t, ours, home, formerly, "api", "api-1")}
	f.between(t, before...)

	// countersign-ra knows the former root, and writes no ConfigMap of the former CA's.
	further := filepath.Join(proctest.Folder(t), "further.pem")
	write(t, further, string(former.root.PEM()))
	moving := withVault(own) + strings.ReplaceAll(ofMesh, "FURTHER", "further_file: "+further)
	r := serveEnvoys(t, home, "", moving)
	b.lead(t, r)
	next := own.roots(t)
	both := former.root.Union(next)
	r.awaitIstiodTLS(t, home)
	if !published(t, home).Equal(former.root) {
		t.Error("the former CA's ConfigMap was written")
	}
	knows := func(roots *pki.Bundle, pods ...*sidecar) {
		for _, s := range pods {
			s.awaitLeaf(t, r, "the roots", func(_ *x509.Certificate, has []*x509.Certificate) bool { return pki.NewBundle(has...).Equal(roots) })
		}
	}

	// Roots first: the former CA tells the new one, and each pod has it.
	former.publish(both)
	knows(both, before...)

	// Then leaves: pods that start now are of countersign-ra.
	now := caOf{b.address(), mounted(t, home)}
	after := []*sidecar{startSidecarWith(t, ours, home, now, "web", "web-2"), startSidecarWith(t, stock, home, now, "api", "api-2")}
	knows(both, after...)
	f.between(t, append(before, after...)...)
	f.flow(t, r, 100)
	f.between(t, after...)
	stopAll(before...)

	// Then the former CA goes, and countersign-ra takes over the ConfigMap.
	former.Stop(syscall.SIGTERM)
	taken := strings.Replace(moving, "further_file", "adopt: true, further_file", 1)
	r = r.again(t, b, home, "", taken)
	home.awaitOwn(t, r, both)
	awaitEachRenewal(t, r, after)
	f.flow(t, r, 10)

	// Then its root goes: nobody trusts it any more, and nothing breaks.
	r = r.again(t, b, home, "", strings.Replace(taken, ", further_file: "+further, "", 1))
	home.awaitOwn(t, r, next)
	knows(next, after...)
	f.flow(t, r, 10)

	// The way back begins with the former root, as the way there did with the new one. Once both
	// are everywhere, leaves go.
	r = r.again(t, b, home, "", taken)
	home.awaitOwn(t, r, both)
	knows(both, after...)
	former.publish(both)
	back := caOf{former.address, mounted(t, home)}
	again := []*sidecar{startSidecarWith(t, stock, home, back, "web", "web-3"), startSidecarWith(t, ours, home, back, "api", "api-3")}
	knows(both, again...)
	f.between(t, append(after, again...)...)
	f.flow(t, r, 100)
	f.between(t, again...)
	stopAll(after...)
	r.Stop(syscall.SIGTERM)
	former.publish(former.root)
	for _, s := range again {
		s.agent.Until(t, patience, "the former root alone is left", func() bool {
			_, roots := pairIn(s.certs)
			return pki.NewBundle(roots...).Equal(former.root)
		})
	}
	f.stop(t)
}

func stopAll(pods ...*sidecar) {
	for _, s := range pods {
		s.envoy.Stop(syscall.SIGTERM)
		s.agent.Stop(syscall.SIGTERM)
	}
}

// awaitIstiodTLS waits for what istiod needs before it starts without its own CA.
func (r *replica) awaitIstiodTLS(t *testing.T, home realm) {
	t.Helper()
	r.until(t, "istiod-tls is there", func() bool {
		_, err := home.Client().CoreV1().Secrets("istio-system").Get(t.Context(), "istiod-tls", metav1.GetOptions{})
		return err == nil
	})
}

// awaitOwn waits until the ConfigMap is countersign-ra's and has the roots.
func (h realm) awaitOwn(t *testing.T, r *replica, roots *pki.Bundle) {
	t.Helper()
	r.until(t, "the ConfigMap is taken over", func() bool {
		object, err := h.Client().CoreV1().ConfigMaps("shop").Get(t.Context(), meshroots.Name, metav1.GetOptions{})
		return err == nil && object.Labels[owned.ManagedBy] == owned.Manager && published(t, h).Equal(roots)
	})
}
