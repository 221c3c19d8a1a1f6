//go:build e2e

package kubestore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/kubestore"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/token"
)

// rights are those of docs/on-demand.md.
func rights(tb testing.TB) []rbacv1.PolicyRule {
	tb.Helper()
	_, text, _ := strings.Cut(page(tb), "kind: Role\n")
	text, _, _ = strings.Cut(text, "---\n")
	var role rbacv1.Role
	must(tb, yaml.UnmarshalStrict([]byte(text), &role))
	if len(role.Rules) == 0 {
		tb.Fatal("the page has no rights")
	}
	return role.Rules
}

// site is a cluster with a namespace for the certificates, and a CA.
type site struct {
	*kubetest.Cluster
	ca    *signer
	token ca.Token // of the service account of the agents
}

// signer counts the orders that came, and hangs while it is set to.
type signer struct {
	*catest.CA
	hangs atomic.Bool
	hung  chan struct{} // gets one for each call that hangs

	mu  sync.Mutex
	ids []string
}

func (s *signer) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	s.mu.Lock()
	if !slices.Contains(s.ids, req.ID) {
		s.ids = append(s.ids, req.ID)
	}
	s.mu.Unlock()
	if s.hangs.Load() {
		s.hung <- struct{}{}
		<-ctx.Done()
		return ca.Certificate{}, ctx.Err()
	}
	return s.CA.CSRSign(ctx, req)
}

func (s *signer) orders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: kubetest.Start(t, kubetest.Options{}), ca: &signer{CA: catest.NewCA(catest.Options{}), hung: make(chan struct{}, 10)}}
	s.Namespace(namespace)
	s.Bind(namespace, s.ServiceAccount(namespace, "agent"), rights(t)...)
	s.token = ca.Token(s.Token(namespace, "agent"))
	return s
}

// agent is a Set with the store, on a machine whose network can be cut.
type agent struct {
	*ondemand.Set
	store *kubestore.Store
	cut   atomic.Bool
}

func (s *site) agent(t *testing.T) *agent {
	t.Helper()
	a := &agent{}
	inner := s.transport(t)
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		if a.cut.Load() {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return inner.RoundTrip(r)
	})
	var err error
	a.store, err = kubestore.Open(kubestore.Config{
		API:       kubeapi.Config{URL: s.URL, Transport: transport, Token: token.Static{Value: s.token}},
		Namespace: namespace, TLSSecrets: true, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	manager, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: s.ca}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}}, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	patterns, err := names.New("*.shop.example.org")
	must(t, err)
	a.Set, err = ondemand.New(ondemand.Config{
		Manager: manager, Storage: a.store, Log: slog.New(slog.DiscardHandler),
		Rules: []ondemand.Rule{{Name: "shop", Patterns: patterns, Wait: time.Minute, Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour}}},
	})
	must(t, err)
	t.Cleanup(func() { a.Close(); manager.Close(); a.store.Close() })
	return a
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// transport verifies the API server.
func (s *site) transport(t *testing.T) *http.Transport {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.CA) {
		t.Fatal("the cluster has no root")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// get waits for the certificate of a name, as a handshake does.
func (a *agent) get(t *testing.T, name string) *secret.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	item, err := secret.Get(ctx, a, secret.Caller{}, name)
	must(t, err)
	return item
}

func TestRealAgentsShareOneOrder(t *testing.T) {
	s := newSite(t)
	first, second := s.agent(t), s.agent(t)
	must(t, first.store.Check(t.Context()))
	got, again := first.get(t, web), second.get(t, web)
	if got.Fingerprint != again.Fingerprint || s.ca.orders() != 1 {
		t.Errorf("%d orders", s.ca.orders())
	}
	var copied *corev1.Secret
	kubetest.Await(t, "the copy of the certificate", func(ctx context.Context) (bool, error) {
		var err error
		copied, err = s.Client().CoreV1().Secrets(namespace).Get(ctx, web, metav1.GetOptions{})
		return err == nil, err
	})
	if copied.Type != corev1.SecretTypeTLS {
		t.Errorf("the copy has type %s", copied.Type)
	}

	// The first one is cut off in the middle of an order.
	const other = "b.shop.example.org"
	s.ca.hangs.Store(true)
	stop, err := first.Watch(secret.Caller{}, other, func(string) {})
	must(t, err)
	defer stop()
	<-s.ca.hung
	first.cut.Store(true)
	s.ca.hangs.Store(false)
	begun := time.Now()
	second.get(t, other)
	if s.ca.orders() != 2 {
		t.Errorf("%d orders", s.ca.orders())
	}
	t.Logf("the successor had the certificate after %s", time.Since(begun))

	// Names that are held are served while the API server is away; a third agent catches up later.
	s.Stop()
	for _, name := range []string{web, other} {
		if item, err := second.Peek(secret.Caller{}, name); err != nil || item == nil {
			t.Errorf("%s is not served: %v", name, err)
		}
	}
	third := s.agent(t)
	s.Resume()
	if item := third.get(t, web); item.Fingerprint != got.Fingerprint || s.ca.orders() != 2 {
		t.Errorf("%d orders after a restart without the API server", s.ca.orders())
	}
	if status := second.store.Status(); status.Damaged != 0 || status.Foreign != 0 {
		t.Errorf("%+v", status)
	}
}
