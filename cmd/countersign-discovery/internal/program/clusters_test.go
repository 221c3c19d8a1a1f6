package program

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const secretURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// goodToken is one of the service account web in the namespace shop, for an API server
// of a test.
const goodToken = "a-token-that-the-api-server-knows"

// apiServer stands in for a cluster's: it lists what it has, allows everything, and
// nothing ever changes.
type apiServer struct {
	*httptest.Server
	secrets []corev1.Secret
	stopped chan struct{}
	away    atomic.Bool // it answers 503
}

func newAPIServer(t *testing.T, secrets ...corev1.Secret) *apiServer {
	t.Helper()
	s := &apiServer{secrets: secrets, stopped: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		close(s.stopped)
		s.Close()
	})
	return s
}

func (s *apiServer) kubeconfig() string {
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: ours}}]
`, s.URL, base64.StdEncoding.EncodeToString(roots))
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case s.away.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Query().Get("sendInitialEvents") != "":
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-s.stopped:
		}
	case kind == "tokenreviews":
		_, _ = io.WriteString(w, s.review(r))
	case kind == "subjectaccessreviews":
		_, _ = io.WriteString(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
	case kind == "secrets" && r.URL.Query().Get("labelSelector") == "":
		_ = json.NewEncoder(w).Encode(corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.secrets})
	default:
		list := map[string]string{"secrets": "SecretList", "configmaps": "ConfigMapList"}[kind]
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`, list)
	}
}

func (s *apiServer) review(r *http.Request) string {
	var q struct{ Spec struct{ Token string } }
	_ = json.NewDecoder(r.Body).Decode(&q)
	return fmt.Sprintf(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":%t,"audiences":["istio-ca"],
		"user":{"username":"system:serviceaccount:shop:web","groups":["system:serviceaccounts","system:serviceaccounts:shop"]}}}`, q.Spec.Token == goodToken)
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
