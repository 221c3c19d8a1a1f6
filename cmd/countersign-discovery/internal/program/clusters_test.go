package program

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

const secretURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// goodToken is one of the service account web in the namespace shop, for an API server
// of a test.
const goodToken = "a-token-that-the-api-server-knows"

// apiServer stands in for a cluster's: it has secrets and allows everything.
type apiServer struct {
	*kubetest.FakeServer
	away atomic.Bool // it answers 503
}

func newAPIServer(t *testing.T, secrets ...corev1.Secret) *apiServer {
	t.Helper()
	f, s := kubetest.NewFake(), &apiServer{}
	f.Token, f.Answers["tokenreviews"], f.Answers["subjectaccessreviews"] = "ours", review, allow
	f.Before = func(*kubetest.Call) error {
		if s.away.Load() {
			return apierrors.NewServiceUnavailable("as the test says")
		}
		return nil
	}
	for _, one := range secrets {
		f.Put(&one)
	}
	s.FakeServer = f.Listen(t)
	return s
}

func (s *apiServer) kubeconfig() string { return string(s.Kubeconfig("")) }

func allow(o kubetest.Object) any {
	o["status"] = kubetest.Object{"allowed": true}
	return o
}

func review(o kubetest.Object) any {
	o["status"] = kubetest.Object{
		"authenticated": o.At("spec", "token") == goodToken, "audiences": []string{"istio-ca"},
		"user": kubetest.Object{"username": "system:serviceaccount:shop:web", "groups": []string{"system:serviceaccounts", "system:serviceaccounts:shop"}},
	}
	return o
}

// tlsSecret is one in the namespace shop.
func (a authority) tlsSecret(t *testing.T, name string, template certificate) corev1.Secret {
	t.Helper()
	dir := t.TempDir()
	chain, key := filepath.Join(dir, "chain"), filepath.Join(dir, "key")
	a.write(t, template, chain, key)
	return corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: "1", UID: "1"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": []byte(read(t, chain)), "tls.key": []byte(read(t, key))},
	}
}

// inKubernetes is a service with an API server and nothing else that knows callers.
const inKubernetes = `
listen: {tls: '127.0.0.1:0'}
certificate: {dns_names: [discovery.test]}
PROVIDERS
cluster: {kubeconfig: DIR/kube.yaml}
status: {address: 'unix:DIR/page'}
times: {drain: 0s}
`

func TestKubernetesSecretResultsAreCountedAndShown(t *testing.T) {
	t.Parallel()
	other := newAuthority(t)
	api := newAPIServer(t,
		other.tlsSecret(t, "fresh", certificate{}), other.tlsSecret(t, "old", certificate{expired: true}),
		corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bad", ResourceVersion: "1"}, Data: map[string][]byte{"tls.crt": []byte("?"), "tls.key": []byte("?")}},
	)
	dir := files(t, inKubernetes)
	write(t, filepath.Join(dir, "kube.yaml"), api.kubeconfig())
	p := start(t, dir)
	p.ready(t)
	s, err := caller{tls: p.authority(t).client(t, ""), token: goodToken}.open(t, p.tls(t), secretURL,
		"kubernetes://fresh", "kubernetes://old", "kubernetes://bad", "kubernetes://none", "kubernetes-gateway://bank/vault")
	if err != nil {
		t.Fatal(err)
	}
	for have := 0; have < 2; {
		answer, err := s.Recv()
		if err != nil {
			t.Fatalf("%v\n%s", err, p.log)
		}
		have += len(answer.Resources)
	}
	want := []string{
		`cluster_state{cluster="Kubernetes",state="synced"} 1`, `cluster_serving{cluster="Kubernetes"} 1`, `cluster_secrets{cluster="Kubernetes"} 3`,
		`access_reviews_total{answer="allowed"} 1`, `access_reviews_total{answer="denied"} 0`, "access_service_accounts 1",
		`refused_secrets_total{reason="identity"} 0`, "expired_secrets_total 1", "malformed_secrets_total 1", "kept_secrets 3",
		`watched_secrets{cluster="Kubernetes",kind="certificate",state="valid"} 1`, `watched_secrets{cluster="Kubernetes",kind="certificate",state="expired"} 1`,
		`watched_secrets{cluster="Kubernetes",kind="certificate",state="malformed"} 1`, `watched_secrets{cluster="Kubernetes",kind="ca",state="valid"} 0`,
		`watched_secrets_first_expiry_timestamp_seconds{cluster="Kubernetes",kind="certificate"} `,
		`certificate_held{secret="default"} 1`, `authentications_total{kind="token-review"} 1`,
	}
	has := func(want string) bool { return strings.Contains(p.metrics(t), "countersign_discovery_"+want) }
	for _, one := range want {
		eventually(t, func() bool { return has(one) }, one, p.log)
	}
	for _, reason := range []string{"missing", "namespace", "malformed"} {
		if has(fmt.Sprintf(`refused_secrets_total{reason=%q} 0`, reason)) {
			t.Errorf("no secret is refused as %s:\n%s", reason, p.metrics(t))
		}
	}
	shown := strings.Join(strings.Fields(p.status(t)), " ")
	_, page := p.page(t, "/")
	for _, want := range []string{"cached objects 3", "expired objects, still served 1", "access reviews: allowed 1", "refused: the caller may not list secrets 0"} {
		if !strings.Contains(shown, want) {
			t.Errorf("status does not show %q:\n%s", want, shown)
		}
		if want = want[:len(want)-2]; !strings.Contains(page, want) {
			t.Errorf("the page does not show %q:\n%s", want, page)
		}
	}
	for _, want := range []string{"Kubernetes certificate 1 0 1 1 20", "secret shop/bad Kubernetes certificate malformed - certificate: ", "secret shop/old Kubernetes certificate expired 20"} {
		if !strings.Contains(shown, want) {
			t.Errorf("status does not show %q:\n%s", want, shown)
		}
	}
	for _, want := range []string{"secret shop/bad", "secret shop/old"} {
		if !strings.Contains(page, want) || strings.Contains(p.metrics(t), "shop") {
			t.Errorf("the page does not show %q, or the metrics do:\n%s", want, page)
		}
	}
	if strings.Contains(p.log.String()+shown+page, goodToken) {
		t.Error("the token is shown")
	}
}
