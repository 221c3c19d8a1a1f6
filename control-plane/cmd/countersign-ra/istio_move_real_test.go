//go:build e2e && linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	security "istio.io/api/security/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// formerCA is a CA that a mesh had before: a stand-in for istiod's own and for istio-csr. As they
// do, it reviews tokens, signs what the caller is by a root of its own, tells its roots in the last
// element of each reply, and writes them into the ConfigMap istio-ca-root-cert.
type formerCA struct {
	security.UnimplementedIstioCertificateServiceServer
	t       *testing.T
	home    realm
	client  kubernetes.Interface
	ca      *catest.CA
	root    *pki.Bundle
	address string
	off     atomic.Bool
}

func startFormerCA(t *testing.T, home realm) *formerCA {
	t.Helper()
	f := &formerCA{t: t, home: home, client: home.Client(), ca: catest.NewCA(catest.Options{})}
	f.root = f.ca.Bundle()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = listener.Addr().String()
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(f.certificate())))
	security.RegisterIstioCertificateServiceServer(server, f)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	f.publish(f.root)
	return f
}

// certificate is the CA's own.
func (f *formerCA) certificate() *tls.Certificate {
	f.t.Helper()
	key, err := pki.GenerateKey("")
	if err != nil {
		f.t.Fatal(err)
	}
	identity, err := pki.NewIdentity("", []string{caAddress}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, identity)
	if err != nil {
		f.t.Fatal(err)
	}
	reply, err := f.ca.CSRSign(f.t.Context(), ca.SignRequest{CSR: csr, TTL: time.Hour})
	if err != nil {
		f.t.Fatal(err)
	}
	certs, err := pki.ParseCertificates(reply.Chain)
	if err != nil {
		f.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{certs[0].Raw}, PrivateKey: key}
}

// publish tells roots with replies and in the ConfigMap, as istiod does by its Secret cacerts.
func (f *formerCA) publish(roots *pki.Bundle) {
	f.t.Helper()
	f.ca.SetRoots(roots)
	maps := f.client.CoreV1().ConfigMaps("shop")
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: meshroots.Name, Labels: map[string]string{"istio.io/config": "true"}},
		Data:       map[string]string{meshroots.Key: string(roots.PEM())},
	}
	_, err := maps.Create(f.t.Context(), object, metav1.CreateOptions{FieldManager: "pilot-discovery"})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(f.t.Context(), object, metav1.UpdateOptions{FieldManager: "pilot-discovery"})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// CreateCertificate signs for who the API server says that the caller is.
func (f *formerCA) CreateCertificate(ctx context.Context, req *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	if f.off.Load() {
		return nil, grpcstatus.Error(codes.Unimplemented, "unknown service istio.v1.auth.IstioCertificateService")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	review, err := f.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"istio-ca"}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		return nil, grpcstatus.Error(codes.Unauthenticated, "request authenticate failure")
	}
	reply, err := f.ca.CSRSign(ctx, ca.SignRequest{CSR: []byte(req.GetCsr()), TTL: time.Duration(req.GetValidityDuration()) * time.Second})
	if err != nil {
		return nil, err
	}
	return &security.IstioCertificateResponse{CertChain: []string{string(reply.Chain), string(reply.Roots)}}, nil
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
		"{name: file, settings: {dir: CA, self_signed: true, poll_interval: 100ms}}", v.provider(), "authorities: [{name: file,", "authorities: [{name: vault,",
	).Replace(forEnvoys)
}

// A mesh moves from another CA to countersign-ra with Vault, for good, and back, as docs/istio.md
// says. Pods of both CAs talk to each other at each step.
func TestRealMeshMovesFromAnotherCAAndBack(t *testing.T) {
	t.Parallel()
	home, own := newRealm(t, "home"), startVault(t)
	user := home.ServiceAccount("countersign", "countersign-ra")
	home.Bind("", user, append(rulesIn(t, "mesh/mesh.yaml"), rulesIn(t, "istiod/istiod.yaml")...)...)
	former := startFormerCA(t, home)
	b, f := newBalancer(t), &traffic{}
	formerly := caOf{former.address, mounted(t, home)}
	before := []*sidecar{startSidecar(t, home, formerly, "web", "web-1"), startSidecar(t, home, formerly, "api", "api-1")}
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
	after := []*sidecar{startSidecar(t, home, now, "web", "web-2"), startSidecar(t, home, now, "api", "api-2")}
	knows(both, after...)
	f.between(t, append(before, after...)...)
	f.flow(t, r, 100)
	f.between(t, after...)
	stopAll(before...)

	// Then the former CA goes, and countersign-ra takes over the ConfigMap.
	former.off.Store(true)
	taken := strings.Replace(moving, "further_file", "adopt: true, further_file", 1)
	r = r.again(t, b, taken, home)
	home.awaitOwn(t, r, both)
	for _, s := range after {
		s.awaitRenewals(t, r, 2)
	}
	f.flow(t, r, 10)

	// Then its root goes: nobody trusts it any more, and nothing breaks.
	r = r.again(t, b, strings.Replace(taken, ", further_file: "+further, "", 1), home)
	home.awaitOwn(t, r, next)
	knows(next, after...)
	f.flow(t, r, 10)

	// The way back begins with the former root, as the way there did with the new one. Once both
	// are everywhere, leaves go.
	r = r.again(t, b, taken, home)
	home.awaitOwn(t, r, both)
	knows(both, after...)
	former.off.Store(false)
	former.publish(both)
	back := caOf{former.address, mounted(t, home)}
	again := []*sidecar{startSidecar(t, home, back, "web", "web-3"), startSidecar(t, home, back, "api", "api-3")}
	knows(both, again...)
	f.between(t, append(after, again...)...)
	f.flow(t, r, 100)
	f.between(t, again...)
	stopAll(after...)
	r.Stop(syscall.SIGTERM)
	former.publish(former.root)
	for _, s := range again {
		poll(t, s.agent, "the former root alone is left", func() bool {
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
		return err == nil && object.Labels[meshroots.ManagedBy] == meshroots.Manager && published(t, h).Equal(roots)
	})
}

// again starts the program with another configuration, as an update of a Deployment does.
func (r *replica) again(t *testing.T, b *balancer, config string, home realm) *replica {
	t.Helper()
	next := serveEnvoys(t, home, "", config)
	b.lead(t, next)
	r.Stop(syscall.SIGTERM)
	return next
}
