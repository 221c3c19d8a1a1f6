//go:build e2e && linux

package real_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	system = "istio-system"
	inMesh = `mesh: {roots: {enabled: true, namespaces: mesh=on}, istiod: {enabled: true, revisions: [canary]}}` + "\n"
)

// member makes a namespace of the mesh.
func (s *site) member(names ...string) {
	s.t.Helper()
	for _, name := range names {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mesh": "on"}}}
		_, err := s.Client().CoreV1().Namespaces().Create(s.t.Context(), n, metav1.CreateOptions{})
		must(s.t, err)
	}
}

// awaitMeshRoots waits for a ConfigMap of ours with roots, and returns them.
func (s *site) awaitMeshRoots(namespace string) (roots *pki.Bundle) {
	s.t.Helper()
	kubetest.Await(s.t, "no roots in "+namespace, func(ctx context.Context) (bool, error) {
		m, err := s.Client().CoreV1().ConfigMaps(namespace).Get(ctx, meshroots.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if m.Labels[owned.ManagedBy] != owned.Manager {
			return false, errors.New("it is not ours")
		}
		roots, err = pki.ParseBundle([]byte(m.Data[meshroots.Key]))
		return err == nil, err
	})
	return roots
}

// awaitIstiod waits for istiod's certificate, and verifies it by the roots that the mesh has.
func (s *site) awaitIstiod(roots *pki.Bundle) *x509.Certificate {
	s.t.Helper()
	var found *corev1.Secret
	kubetest.Await(s.t, "istiod has no certificate", func(ctx context.Context) (_ bool, err error) {
		found, err = s.Client().CoreV1().Secrets(system).Get(ctx, istiodtls.Name, metav1.GetOptions{})
		return err == nil, err
	})
	pair, err := tls.X509KeyPair(found.Data["tls.crt"], found.Data["tls.key"])
	must(s.t, err)
	own, err := pki.ParseBundle(found.Data["ca.crt"])
	must(s.t, err)
	for _, roots := range []*pki.Bundle{roots, own} {
		for _, name := range istiod.Names(system, "canary") {
			_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots.Pool()})
			must(s.t, err)
		}
	}
	return pair.Leaf
}

func TestRealMeshGetsRootsAndIstiodACertificate(t *testing.T) {
	t.Parallel()
	d := deploy(t, kubetest.Start(t, kubetest.Options{}), "mesh", "istiod")
	d.more = inMesh
	d.member(system, "shop")
	d.Namespace("bank")
	maps := d.Client().CoreV1().ConfigMaps
	first := d.start(shipped)
	first.awaitLeading()
	roots := d.awaitMeshRoots("shop")
	leaf := d.awaitIstiod(d.awaitMeshRoots(system))

	must(t, maps("shop").Delete(t.Context(), meshroots.Name, metav1.DeleteOptions{}))
	d.awaitMeshRoots("shop")
	_, err := maps(system).Patch(t.Context(), meshroots.Name, types.MergePatchType, []byte(`{"data": {"root-cert.pem": "theirs", "more": "kept"}}`), metav1.PatchOptions{FieldManager: "pilot-discovery"})
	must(t, err)
	if !d.awaitMeshRoots(system).Equal(roots) {
		t.Error("other roots than before")
	}
	d.member("new")
	if !d.awaitMeshRoots("new").Equal(roots) {
		t.Error("other roots than elsewhere")
	}
	_, err = maps("bank").Get(t.Context(), meshroots.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("in a namespace that is not chosen: %v", err)
	}

	// The next leader goes on with istiod's certificate.
	first.Stop(syscall.SIGTERM)
	d.start(shipped).awaitMesh("home", func(m meshStatus) bool {
		return m.Roots.Error == "" && m.Istiod.Error == "" && m.Istiod.Fingerprint != ""
	})
	if now := d.awaitIstiod(roots); !now.Equal(leaf) {
		t.Error("the next leader asked for another certificate")
	}
}

// What istiod with its own CA, or cert-manager, has written is not touched.
func TestRealMeshObjectsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	d := deploy(t, kubetest.Start(t, kubetest.Options{}), "mesh", "istiod")
	d.more = inMesh
	d.member(system, "shop")
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: meshroots.Name, Labels: map[string]string{"istio.io/config": "true"}}, Data: map[string]string{meshroots.Key: "theirs"}}
	_, err := d.Client().CoreV1().ConfigMaps("shop").Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "pilot-discovery"})
	must(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: istiodtls.Name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("theirs"), "tls.key": []byte("theirs")}}
	_, err = d.Client().CoreV1().Secrets(system).Create(t.Context(), secret, metav1.CreateOptions{})
	must(t, err)
	r := d.start(shipped)
	d.awaitMeshRoots(system)
	r.awaitMesh("home", func(m meshStatus) bool { return m.Roots.Lacking == 1 && m.Istiod.Error != "" })
	found, err := d.Client().CoreV1().ConfigMaps("shop").Get(t.Context(), meshroots.Name, metav1.GetOptions{})
	if err != nil || found.Data[meshroots.Key] != "theirs" {
		t.Errorf("%+v, %v", found, err)
	}
	kept, err := d.Client().CoreV1().Secrets(system).Get(t.Context(), istiodtls.Name, metav1.GetOptions{})
	if err != nil || string(kept.Data["tls.crt"]) != "theirs" {
		t.Errorf("the Secret was written, or %v", err)
	}

	// The operator allows it.
	r.Stop(syscall.SIGTERM)
	d.more = "mesh: {roots: {enabled: true, namespaces: mesh=on, adopt: true}, istiod: {enabled: true, revisions: [canary], adopt: true}}\n"
	d.start(shipped).awaitMesh("home", func(m meshStatus) bool {
		return m.Roots.Error == "" && m.Istiod.Error == "" && m.Istiod.Fingerprint != ""
	})
	d.awaitIstiod(d.awaitMeshRoots("shop"))
}

// istiod with its own CA puts its roots back at once, each time.
func TestRealMeshNamesAnotherWriter(t *testing.T) {
	t.Parallel()
	d := deploy(t, kubetest.Start(t, kubetest.Options{}), "mesh")
	d.more = "mesh: {roots: {enabled: true, namespaces: mesh=on}}\n"
	d.member("shop")
	r := d.start(shipped)
	roots := d.awaitMeshRoots("shop")
	stop := inBackground(t, func(ctx context.Context) { d.rival(ctx, "shop") })
	r.awaitMesh("home", func(m meshStatus) bool { return m.Roots.Disputed == 1 && m.Roots.Rival == "pilot-discovery" })
	stop()
	kubetest.Await(t, "the roots are not restored", func(ctx context.Context) (bool, error) {
		m, err := d.Client().CoreV1().ConfigMaps("shop").Get(ctx, meshroots.Name, metav1.GetOptions{})
		return err == nil && m.Data[meshroots.Key] == string(roots.PEM()), err
	})
}

// rival writes other roots into a namespace as soon as somebody else writes there.
func (s *site) rival(ctx context.Context, namespace string) {
	maps := s.Client().CoreV1().ConfigMaps(namespace)
	follow, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + meshroots.Name})
	if err != nil {
		s.t.Error(err)
		return
	}
	defer follow.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-follow.ResultChan():
			m, ok := event.Object.(*corev1.ConfigMap)
			if !open || !ok {
				return
			}
			if m.Data[meshroots.Key] == "theirs" {
				continue
			}
			m.Data[meshroots.Key] = "theirs"
			_, err := maps.Update(ctx, m, metav1.UpdateOptions{FieldManager: "pilot-discovery"})
			if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
				s.t.Error(err)
			}
		}
	}
}

// A root is everywhere once the mesh's namespaces of all clusters have it.
func TestRealMeshOfTwoClustersHasTheSameRoots(t *testing.T) {
	t.Parallel()
	d := deploy(t, kubetest.Start(t, kubetest.Options{Name: "home"}), "remotes", "mesh", "istiod")
	east := &site{kubetest.Start(t, kubetest.Options{Name: "east"}), t}
	east.Namespace(home)
	applyManifests(t, east.Cluster, "resources: [BASE/rights]\ncomponents: [BASE/mesh, BASE/istiod]\n")
	introduce(t, d.Cluster, east.Cluster)
	d.member(system, "shop")
	east.member(system, "shop")
	d.more = "remotes: {secrets: true}\nmesh: {roots: {enabled: true, namespaces: mesh=on}, istiod: {enabled: true, revisions: [canary], clusters: [home, east]}}\n"
	r := d.start(shipped)
	roots := d.awaitMeshRoots("shop")
	if !east.awaitMeshRoots("shop").Equal(roots) {
		t.Error("the clusters have different roots")
	}
	d.awaitIstiod(roots)
	east.awaitIstiod(roots)
	for _, id := range []string{"home", "east"} {
		r.awaitMesh(id, func(m meshStatus) bool { return m.Roots.Namespaces == 2 && m.Roots.Lacking == 0 && m.Roots.Error == "" })
	}
}

// meshStatus is what the status says of a mesh.
type meshStatus struct {
	Roots struct {
		Namespaces, Lacking, Disputed int
		Rival, Error                  string
	}
	Istiod struct{ Fingerprint, Error string }
}

// awaitMesh returns when the status says so of a cluster.
func (r *replica) awaitMesh(cluster string, so func(meshStatus) bool) {
	r.t.Helper()
	r.await("the mesh is not as it should be", func(s status) bool {
		for _, c := range s.Clusters {
			if c.ID == cluster && c.Mesh != nil {
				return so(*c.Mesh)
			}
		}
		return false
	})
}

func (m meshStatus) String() string { return fmt.Sprintf("%+v %+v", m.Roots, m.Istiod) }
