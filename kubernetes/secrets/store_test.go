package secrets

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/ondemand/kubestore"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// A gateway gets what agents have in their store in a cluster, and orders nothing by asking.
func TestCertificateOnDemandIsServedFromItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "a.shop.example.org"
		fake := kubetest.NewFake()
		store, err := kubestore.Open(kubestore.Config{
			API: kubeapi.Config{URL: "http://127.0.0.1", Transport: fake}, Namespace: "certificates", TLSSecrets: true, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		defer background.Run(func(ctx context.Context) { _ = store.Changes(ctx, func(secret.Entry, bool) {}) })()
		chain, key := catest.NewCA(catest.Options{}).Pair(0, "", name)
		content, err := json.Marshal(map[string]any{"version": 1, "pair": map[string]any{"chain": chain, "key": key}})
		must(t, err)
		must(t, store.Store(t.Context(), secret.Entry{Name: name, Renew: time.Now(), Ends: time.Now().Add(time.Hour)}, secret.Record{Content: content}))
		time.Sleep(2 * time.Second)

		s := newScene(t, func(c *Config) {
			c.Grants = []Grant{{To: Who{"*", "home", "gateways", "*"}, Namespace: "certificates", Names: []string{"*"}}}
		})
		copied := kubetest.Get[corev1.Secret](fake, "secrets", "certificates", name)
		s.at("home").put("certificates/"+name, copied.Data)
		gateway := caller("home", "gateways", "gateway")
		got := s.secret(t, gateway, "kubernetes-gateway://certificates/"+name).GetTlsCertificate()
		if string(got.GetCertificateChain().GetInlineBytes()) != string(chain) {
			t.Error("it is another certificate")
		}
		before := fake.Changes()
		if had := s.had(t, gateway, "kubernetes-gateway://certificates/b.shop.example.org"); had != "missing" {
			t.Errorf("a name that is not in the store: %s", had)
		}
		if had := s.had(t, caller("home", "shop", "web"), "kubernetes-gateway://certificates/"+name); had != "namespace" {
			t.Errorf("a caller without a grant: %s", had)
		}
		if fake.Changes() != before {
			t.Error("the API server was written to")
		}
	})
}

var must = fatal.If
