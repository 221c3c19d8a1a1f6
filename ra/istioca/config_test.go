package istioca_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// issues is an issuer that is never asked.
type issues struct{ ra.Issuer }

func valid(t *testing.T) istioca.Config {
	return istioca.Config{
		Issuer: issues{}, Tokens: []authn.Named{{Name: "kubernetes", Authenticator: authn.Clusters(nil)}},
		TLS: &tls.Config{Certificates: []tls.Certificate{*certtest.Root(t).TLS()}},
	}
}

func TestNewNamesTheWrongSetting(t *testing.T) {
	proxies := []istioca.Account{{Cluster: home, Namespace: "istio-system", ServiceAccount: "ztunnel"}}
	for want, change := range map[string]func(c *istioca.Config){
		"needs Issuer and Tokens":         func(c *istioca.Config) { c.Issuer = nil },
		"Issuer and Tokens":               func(c *istioca.Config) { c.Tokens = nil },
		"without an Authenticator":        func(c *istioca.Config) { c.Tokens = []authn.Named{{Name: "none"}} },
		"Config.NodeProxies needs Pods":   func(c *istioca.Config) { c.NodeProxies = proxies },
		"without Cluster, Namespace or":   func(c *istioca.Config) { c.Pods, c.NodeProxies = newPods(), []istioca.Account{{Cluster: home}} },
		"neither may be empty":            func(c *istioca.Config) { c.IssuerClusters = map[string]string{"https://issuer.test": ""} },
		"it needs a name that prints":     func(c *istioca.Config) { c.CertSigners = []string{"a\n"} },
		"needs a name that prints":        func(c *istioca.Config) { c.CertSigners = []string{""} },
		"Config.TLS is required":          func(c *istioca.Config) { c.TLS = nil },
		"the server needs a certificate":  func(c *istioca.Config) { c.TLS = &tls.Config{} },
		"Config.Limits has -1: use more":  func(c *istioca.Config) { c.Limits.CSR = -1 },
		"Config.Times has -1ns: use more": func(c *istioca.Config) { c.Times.Hold = -1 },
		"would replace the server's own ru": func(c *istioca.Config) {
			c.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		},
	} {
		c := valid(t)
		change(&c)
		if _, err := istioca.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := istioca.New(valid(t)); err != nil {
		t.Error(err)
	}
}

func TestDoorsAreOneForEachCertSigner(t *testing.T) {
	got := istioca.Doors("fast", "slow")
	want := []string{"istio", "istio/fast", "istio/slow"}
	for i, name := range want {
		if len(got) != len(want) || got[i].Name != name || got[i].LeastTTL != time.Minute {
			t.Fatalf("got %v, want %q", got, want)
		}
	}
	engine, err := ra.New(ra.Config{Policy: must(ra.NewPolicy(home, nil)), Audit: ratest.NoAudit, Doors: got})
	if err != nil {
		t.Fatal(err)
	}
	engine.Close()
}

func TestServerRunsOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.raw("192.0.2.1").Close() // it runs
		if err := m.server.Run(t.Context(), bufconn.Listen(1)); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("got %v", err)
		}
	})
}

func TestListenerThatFailsEndsRun(t *testing.T) {
	server, err := istioca.New(valid(t))
	if err != nil {
		t.Fatal(err)
	}
	on := bufconn.Listen(1)
	_ = on.Close()
	if err := server.Run(t.Context(), on); err == nil || !strings.Contains(err.Error(), "serve") {
		t.Errorf("got %v", err)
	}
}
