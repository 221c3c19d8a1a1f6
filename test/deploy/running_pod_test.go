//go:build e2e && linux

package deploy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

const (
	system     = "istio-system"
	discoverer = "countersign-discovery"
	ofAccount  = "/var/run/secrets/kubernetes.io/serviceaccount"
	lockFile   = "/usr/lib/countersign/countersign.lock"
)

// running is the pod that the base deploys.
type running struct {
	*pod
	cluster *kubetest.Cluster
	istiod  *istiod
	command []string
	token   string // of its account

	address, probes string
}

// deploy applies the base, and lays out its pod.
func deploy(t *testing.T) *running {
	t.Helper()
	c := kubetest.Start(t, kubetest.Options{})
	restricted(t, c, system)
	text := built(t, "resources: [BASE/discovery]", nil)
	apply(t, c, text)
	spec, config := deployment(t, text, "discovery.yaml")
	token := c.Token(system, discoverer, "istio-ca")
	r := &running{cluster: c, istiod: startIstiod(t, token), address: proctest.FreeAddress(t), probes: proctest.FreeAddress(t)}
	r.command = slices.Concat(spec.Containers[0].Command, spec.Containers[0].Args)
	config = elsewhere(t, config, map[string]string{
		"istiod.istio-system.svc:15012": "istiod.istio-system.svc:" + r.istiod.port,
		`probes: ":15021"`:              fmt.Sprintf("{probes: %q, address: %q}", r.probes, proctest.FreeAddress(t)),
	}) + fmt.Sprintf("listen: {tls: %q}\naccess: {deny: 10s}\n", r.address)
	server, err := url.Parse(c.URL)
	must(t, err)
	r.pod = newPod(t, image(t, "countersign", "countersign-discovery", "countersign-provider-citadel"), spec, map[string]map[string]string{
		"config": {"discovery.yaml": config}, "tokens": {"istio-token": token}, "istio-root": {"root-cert.pem": string(r.istiod.roots())},
	}, "KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
	r.file(t, "/etc/hosts", "127.0.0.1 localhost istiod.istio-system.svc\n")
	r.showToken(t)
	return r
}

// showToken gives the pod a token of its account that is new.
func (r *running) showToken(t *testing.T) {
	t.Helper()
	r.token = r.cluster.Token(system, discoverer)
	r.project(t, ofAccount, map[string]string{"token": r.token, "ca.crt": string(r.cluster.CA), "namespace": system})
}

// shop makes a secret, which its accounts may have.
func (r *running) shop(t *testing.T, accounts ...string) {
	t.Helper()
	for _, name := range accounts {
		r.cluster.Bind("shop", r.cluster.ServiceAccount("shop", name), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
	}
	chain, key := r.istiod.files(t, "", "shop.example")
	_, err := r.cluster.Client().CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": chain, "tls.key": key},
	}, metav1.CreateOptions{})
	must(t, err)
}

// serves waits until an account has the shop's secret.
func (r *running) serves(t *testing.T, account string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{*r.istiod.pair(t, "spiffe://cluster.local/ns/shop/sa/"+account)}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, VerifyConnection: r.isDiscovery, // #nosec G402 -- a SPIFFE ID is no name that Go verifies
	})))
	must(t, err)
	defer conn.Close()
	// client-go reads its token's file once a minute, and a no counts for 10 s here.
	soonIn(t, kubetest.Patience, "the secret of "+account, func() error { return fetch(t.Context(), secretv3.NewSecretDiscoveryServiceClient(conn)) })
}

func (r *running) isDiscovery(s tls.ConnectionState) error {
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: r.istiod.mesh.Bundle().Pool()}); err != nil {
		return err
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://cluster.local/ns/istio-system/sa/countersign-discovery" {
		return errors.New("it is somebody else")
	}
	return nil
}

func fetch(ctx context.Context, client secretv3.SecretDiscoveryServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := client.FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{
		Node: &core.Node{Id: "proxy~1"}, TypeUrl: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", ResourceNames: []string{"kubernetes://web"},
	})
	if err != nil {
		return err
	}
	var secret tlsv3.Secret
	if len(answer.GetResources()) != 1 || answer.GetResources()[0].UnmarshalTo(&secret) != nil || len(secret.GetTlsCertificate().GetPrivateKey().GetInlineBytes()) == 0 {
		return errors.New("there is no key in the answer")
	}
	return nil
}

// turnOver has the account's tokens so far refused, and gives the pod a new one.
func (r *running) turnOver(t *testing.T) {
	t.Helper()
	before := r.cluster.ClientFor(&clientcmdapi.AuthInfo{Token: r.token})
	must(t, r.cluster.Client().CoreV1().ServiceAccounts(system).Delete(t.Context(), discoverer, metav1.DeleteOptions{}))
	r.cluster.ServiceAccount(system, discoverer)
	r.showToken(t)
	soon(t, "the old token to be refused", func() error {
		if apierrors.IsUnauthorized(needs["create tokenreviews"](t.Context(), before)) {
			return nil
		}
		return errors.New("it is not")
	})
}

func TestRealPodRunsWithImageAndBaseAlone(t *testing.T) {
	r := deploy(t)
	r.shop(t, "web", "late", "other")
	for want, args := range map[string][]string{
		"countersign ": {"version"},
		"matches: ":    {"provider", "verify", "--lock", lockFile},
		"citadel":      {"provider", "list", "--lock", lockFile},
	} {
		if got := done(t, r.pod.command(t.Context(), append([]string{"/usr/bin/countersign"}, args...)...)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", args, got)
		}
	}
	service := r.run(t, r.command...)
	service.ready(t, r.probes)
	r.serves(t, "web")
	r.turnOver(t)
	r.serves(t, "late")
	service.end(t)

	verified := r.run(t, slices.Concat([]string{"/usr/bin/countersign", "discovery", "--lock", lockFile}, r.command[1:])...)
	verified.ready(t, r.probes)
	r.serves(t, "other")
}
