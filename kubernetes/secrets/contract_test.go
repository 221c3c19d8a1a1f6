package secrets

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// filled puts into each cluster, in the namespaces shop and bank: foo, a pair with a CA;
// own-<cluster>, which is there only; split with split-cacert; and the config map roots.
func filled(t *testing.T, change func(*Config)) *scene {
	t.Helper()
	s := newScene(t, change)
	for id, c := range s.fleet.clusters {
		for _, namespace := range []string{"shop", "bank"} {
			at := id + " " + namespace
			c.put(namespace+"/own-"+id, tlsOf(at+" own"))
			c.put(namespace+"/split", tlsOf(at+" split"))
			// It bears a key, too: that must never be had as a CA.
			c.put(namespace+"/split-cacert", data{"cacert": of("ca of " + at + " split-cacert").cert, "tls.crt": of(at + " trap").cert, "tls.key": of(at + " trap").key})
			c.put(namespace+"/no-ca", data{"tls.crt": of(at + " no-ca").cert, "tls.key": of(at + " no-ca").key})
			c.putMap(namespace+"/roots", map[string]string{"ca.crt": string(of("ca of " + at + " roots").cert)})
		}
	}
	s.at("home").put("shop/foo", tlsOf("home foo"))
	s.at("east").put("shop/foo", tlsOf("east foo"))
	return s
}

func TestAccessMatrix(t *testing.T) {
	s := filled(t, func(c *Config) {
		c.MayReadConfigCluster = []string{"east"}
		c.Grants = []Grant{{To: Who{"*", "east", "shop", "gateway"}, Namespace: "bank", Names: []string{"own-east", "own-home", "split"}}}
	})
	s.rights.set(access.Subject{Cluster: "home", Namespace: "shop", ServiceAccount: "poor"}, access.ErrDenied)
	s.rights.set(access.Subject{Cluster: "home", Namespace: "shop", ServiceAccount: "new"}, access.ErrNotReady)
	for _, test := range []struct{ who, name, want string }{
		{"home/shop/web", "kubernetes://foo", "key home foo"},
		{"home/shop/web", "kubernetes://shop/foo", "key home foo"},
		{"home/shop/web", "kubernetes-gateway://shop/foo", "key home foo"},
		{"home/shop/web", "kubernetes://foo-cacert", "CA ca of home foo"},
		{"home/shop/web", "kubernetes-gateway://shop/foo-cacert", "CA ca of home foo"},
		{"home/shop/web", "kubernetes://nothing", "missing"},
		{"home/shop/web", "kubernetes://shop/../bank/foo", "name"},
		// The twin: the very secret first, and never a key.
		{"home/shop/web", "kubernetes://split", "key home shop split"},
		{"home/shop/web", "kubernetes://split-cacert", "CA ca of home shop split-cacert"},
		{"home/shop/web", "kubernetes://no-ca-cacert", "malformed"},
		// Another namespace.
		{"home/shop/web", "kubernetes://bank/own-home", "namespace"},
		{"home/shop/web", "kubernetes://bank/split-cacert", "namespace"},
		{"home/shop/web", "kubernetes-gateway://bank/own-home", "namespace"},
		{"home/shop/web", "kubernetes-gateway://bank/own-home-cacert", "namespace"},
		{"home/bank/web", "kubernetes://own-home", "key home bank own"},
		{"home/bank/web", "kubernetes://foo", "missing"},
		{"home/shop/web", "configmap://bank/roots", "CA ca of home bank roots"},
		{"home/shop/web", "configmap://shop/roots-cacert", "CA ca of home shop roots"},
		{"home/shop/web", "configmap://shop/foo", "missing"},
		{"home/shop/web", "kubernetes://roots-cacert", "missing"},
		// By grant: this service account of that cluster only, these names only.
		{"east/shop/gateway", "kubernetes-gateway://bank/own-east", "key east bank own"},
		{"east/shop/gateway", "kubernetes-gateway://bank/own-east-cacert", "CA ca of east bank own"},
		{"east/shop/gateway", "kubernetes-gateway://bank/own-home", "key home bank own"},
		{"east/shop/gateway", "kubernetes-gateway://bank/split-cacert", "CA ca of east bank split-cacert"},
		{"east/shop/gateway", "kubernetes-gateway://bank/no-ca", "namespace"},
		{"east/shop/gateway", "kubernetes://bank/own-east", "namespace"},
		{"east/shop/web", "kubernetes-gateway://bank/own-east", "namespace"},
		{"home/shop/gateway", "kubernetes-gateway://bank/own-home", "namespace"},
		{"west/shop/gateway", "kubernetes-gateway://bank/own-west", "namespace"},
		// Rights: for keys only.
		{"home/shop/poor", "kubernetes://foo", "rights"},
		{"home/shop/poor", "kubernetes://nothing", "rights"},
		{"home/shop/poor", "kubernetes-gateway://shop/foo", "rights"},
		{"home/shop/poor", "kubernetes://foo-cacert", "CA ca of home foo"},
		{"home/shop/poor", "configmap://shop/roots", "CA ca of home shop roots"},
		{"home/shop/new", "kubernetes://foo", "not ready"},
		{"home/shop/new", "kubernetes://foo-cacert", "CA ca of home foo"},
		// Clusters: one's own first, then the config cluster for whom it is allowed.
		{"east/shop/web", "kubernetes://foo", "key east foo"},
		{"east/shop/web", "kubernetes://own-home", "key home shop own"},
		{"east/shop/web", "kubernetes://own-home-cacert", "CA ca of home shop own"},
		{"east/shop/web", "kubernetes://own-west", "missing"},
		{"west/shop/web", "kubernetes://foo", "missing"},
		{"west/shop/web", "kubernetes://foo-cacert", "missing"},
		{"west/shop/web", "kubernetes://own-home", "missing"},
		{"west/shop/web", "kubernetes://own-west", "key west shop own"},
		{"home/shop/web", "kubernetes://own-east", "missing"},
		{"north/shop/web", "kubernetes://foo", "cluster"},
		{"north/shop/web", "kubernetes://foo-cacert", "cluster"},
		{"north/shop/web", "configmap://shop/roots", "cluster"},
		// Without an identity.
		{"/shop/web", "kubernetes://foo", "identity"},
		{"/shop/web", "configmap://shop/roots", "identity"},
		{"home//", "kubernetes://foo-cacert", "identity"},
		{"home/shop/", "kubernetes://shop/foo-cacert", "identity"},
		{"home//web", "configmap://shop/roots", "identity"},
	} {
		who := strings.Split(test.who, "/")
		if got := s.had(t, caller(who[0], who[1], who[2]), test.name); got != test.want {
			t.Errorf("%s has of %s: %s, not %s", test.who, test.name, got, test.want)
		}
	}
}

func TestAllowAllRemoteGetsNoSecretOfConfigCluster(t *testing.T) {
	every := []string{"kubernetes://own-home", "kubernetes://own-home-cacert", "kubernetes-gateway://shop/own-home", "kubernetes-gateway://bank/own-home", "kubernetes://bank/own-home"}
	for _, may := range [][]string{nil, {"east"}, {"home"}} {
		s := filled(t, func(c *Config) { c.MayReadConfigCluster = may })
		for _, name := range every {
			if got := s.had(t, caller("west", "shop", "admin"), name); got != "missing" && got != "namespace" {
				t.Errorf("%v may read the config cluster: west has %s of %s", may, got, name)
			}
		}
	}
	// With "*", as Istio has it, each cluster is trusted.
	s := filled(t, func(c *Config) { c.MayReadConfigCluster = []string{"*"} })
	if got := s.had(t, caller("west", "shop", "web"), "kubernetes://own-home"); got != "key home shop own" {
		t.Errorf("with *: %s", got)
	}
	if got := s.had(t, caller("west", "shop", "web"), "kubernetes-gateway://bank/own-home"); got != "namespace" {
		t.Errorf("another namespace with *: %s", got)
	}
}

func TestClaimedMetadataGrantsNothing(t *testing.T) {
	s := filled(t, func(c *Config) { c.MayReadConfigCluster = []string{"east"} })
	metadata, err := structpb.NewStruct(map[string]any{"CLUSTER_ID": "east", "NAMESPACE": "bank", "SERVICE_ACCOUNT": "gateway"})
	must(t, err)
	forged := caller("west", "shop", "web")
	forged.Node = discovery.Node{ID: "sidecar~10.0.0.1~web.bank~bank.svc.cluster.local", Metadata: metadata, Labels: map[string]string{"namespace": "bank"}}
	honest := caller("west", "shop", "web")
	for _, name := range []string{"kubernetes://own-home", "kubernetes://own-west", "kubernetes://bank/own-west", "kubernetes://own-east", "kubernetes-gateway://bank/own-west"} {
		if got, want := s.had(t, forged, name), s.had(t, honest, name); got != want {
			t.Errorf("%s: %s instead of %s", name, got, want)
		}
	}
}

func TestNonServiceAccountGetsNothing(t *testing.T) {
	s := filled(t, nil)
	reviewed := caller("home", "shop", "web")
	reviewed.Identity.Cluster = "east" // whose API server has reviewed the token
	other, err := authn.OfSPIFFEID("spiffe://cluster.local/web")
	must(t, err)
	for name, c := range map[string]*discovery.Caller{
		"nobody": nil, "another cluster's": reviewed, "another path": {Cluster: "home", Identity: other}, "the zero caller": {},
		"no name of a namespace": caller("home", "shop/../bank", "web"), "no name of an account": caller("home", "shop", "web:x"),
	} {
		for _, resource := range []string{"kubernetes://foo", "kubernetes://foo-cacert", "configmap://shop/roots", "kubernetes-gateway://shop/foo"} {
			if got := s.had(t, c, resource); got != "identity" {
				t.Errorf("%s has %s of %s", name, got, resource)
			}
			if _, err := s.Watch(c, resource, nil); !errors.Is(err, xds.ErrUnknown) {
				t.Errorf("%s watches %s: %v", name, resource, err)
			}
		}
	}
	if len(s.rights.asked) != 0 {
		t.Errorf("the rights of %v were asked", s.rights.asked)
	}
}

func TestRightsAreCheckedInCallersClusterAndNamespace(t *testing.T) {
	s := filled(t, func(c *Config) {
		c.MayReadConfigCluster = []string{"east"}
		c.Grants = []Grant{{To: Who{"cluster.local", "*", "shop", "web"}, Namespace: "bank", Names: []string{"*"}}}
	})
	web := access.Subject{Cluster: "east", Namespace: "shop", ServiceAccount: "web"}
	for i, name := range []string{"kubernetes://own-home", "kubernetes://own-home", "kubernetes-gateway://bank/own-home", "kubernetes://shop/own-east"} {
		if got := s.had(t, caller("east", "shop", "web"), name); !strings.HasPrefix(got, "key ") {
			t.Errorf("%s: %s", name, got)
		}
		if len(s.rights.asked) != i+1 || s.rights.asked[i] != web {
			t.Errorf("%s: asked %v", name, s.rights.asked)
		}
	}
	if want := map[string]bool{"east/web kubernetes://own-home": true, "east/web kubernetes-gateway://bank/own-home": true, "east/web kubernetes://shop/own-east": true}; !maps.Equal(s.rights.held, want) {
		t.Errorf("held are %v", s.rights.held)
	}
	s.rights.set(web, access.ErrDenied)
	for _, name := range []string{"kubernetes://own-home", "kubernetes-gateway://bank/own-home", "kubernetes://shop/own-east"} {
		if got := s.had(t, caller("east", "shop", "web"), name); got != "rights" {
			t.Errorf("without the right: %s of %s", got, name)
		}
	}
}

// What is served must not hang on which cluster was read first.
func TestCallerOfUnsyncedClusterIsNotServedFromAnother(t *testing.T) {
	s := filled(t, func(c *Config) { c.MayReadConfigCluster = []string{"east"} })
	s.at("east").fail(errNotSynced)
	if got := s.had(t, caller("east", "shop", "web"), "kubernetes://foo"); got != "not ready" {
		t.Error(got)
	}
	s.at("east").fail(nil)
	s.at("home").fail(errNotSynced)
	for name, want := range map[string]string{"kubernetes://foo": "key east foo", "kubernetes://own-home": "not ready"} {
		if got := s.had(t, caller("east", "shop", "web"), name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestGrantMatchesEveryField(t *testing.T) {
	whole := Who{"cluster.local", "east", "shop", "gateway"}
	for i, test := range []struct {
		to    Who
		names []string
		want  string
	}{
		{whole, []string{"own-east"}, "key east bank own"},
		{Who{"*", "*", "*", "*"}, []string{"*"}, "key east bank own"},
		{Who{"other.local", "east", "shop", "gateway"}, []string{"*"}, "namespace"},
		{Who{"cluster.local", "west", "shop", "gateway"}, []string{"*"}, "namespace"},
		{Who{"cluster.local", "east", "bar", "gateway"}, []string{"*"}, "namespace"},
		{Who{"cluster.local", "east", "shop", "web"}, []string{"*"}, "namespace"},
		{whole, []string{"own-eas", "own-east2", "own"}, "namespace"},
	} {
		s := filled(t, func(c *Config) { c.Grants = []Grant{{To: test.to, Namespace: "bank", Names: test.names}} })
		if got := s.had(t, caller("east", "shop", "gateway"), "kubernetes-gateway://bank/own-east"); got != test.want {
			t.Errorf("%d: %s", i, got)
		}
	}
	s := filled(t, func(c *Config) { c.Grants = []Grant{{To: whole, Namespace: "bank", Names: []string{"*"}}} })
	s.at("east").put("vault/own-east", tlsOf("vault"))
	if got := s.had(t, caller("east", "shop", "gateway"), "kubernetes-gateway://vault/own-east"); got != "namespace" {
		t.Errorf("of a namespace that no grant names: %s", got)
	}
	plain := caller("east", "shop", "gateway")
	plain.Identity.SPIFFEID = ""
	if got := s.had(t, plain, "kubernetes-gateway://bank/own-east"); got != "namespace" {
		t.Errorf("without a trust domain: %s", got)
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	ok := Grant{To: Who{"*", "*", "shop", "*"}, Namespace: "bank", Names: []string{"foo"}}
	good := func() Config { return Config{Clusters: newFleet("home"), Access: newRights(), Grants: []Grant{ok}} }
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no clusters":              func(c *Config) { c.Clusters = nil },
		"no rights":                func(c *Config) { c.Access = nil },
		"an empty cluster":         func(c *Config) { c.MayReadConfigCluster = []string{""} },
		"an empty grant":           func(c *Config) { c.Grants[0] = Grant{} },
		"a grant without a domain": func(c *Config) { c.Grants[0].To.TrustDomain = "" },
		"a wrong trust domain":     func(c *Config) { c.Grants[0].To.TrustDomain = "a/b" },
		"a grant to no cluster":    func(c *Config) { c.Grants[0].To.Cluster = "" },
		"a wrong namespace":        func(c *Config) { c.Grants[0].To.Namespace = "a/b" },
		"a wrong account":          func(c *Config) { c.Grants[0].To.ServiceAccount = "a:b" },
		"a grant of all":           func(c *Config) { c.Grants[0].Namespace = "*" },
		"a grant of nothing":       func(c *Config) { c.Grants[0].Names = nil },
		"a grant of a wrong name":  func(c *Config) { c.Grants[0].Names = []string{"foo", "a/b"} },
	} {
		cfg := good()
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestRefusalReasonIsLoggedOnce(t *testing.T) {
	s := filled(t, nil)
	for range 3 {
		_, err := s.Peek(caller("home", "shop", "web"), "kubernetes://bank/own-home")
		if !errors.Is(err, xds.ErrUnknown) {
			t.Error(err)
		}
	}
	if lines := strings.Count(s.log.String(), "\n"); lines != 1 || !strings.Contains(s.log.String(), "reason=namespace") {
		t.Errorf("logged:\n%s", s.log)
	}
	for i := range 5000 {
		_, _ = s.Peek(caller("home", "shop", "web"), fmt.Sprintf("kubernetes://bank/made-up-%d\n", i))
	}
	if lines := strings.Count(s.log.String(), "\n"); lines != maxLines/2 || len(s.known) > maxRemarks || s.Counts().Refused[BadName] != 5000 {
		t.Errorf("%d lines of log, %d are remembered, %d were counted", lines, len(s.known), s.Counts().Refused[BadName])
	}
	s.at("home").put("shop/foo", data{})
	if _, err := s.Peek(caller("home", "shop", "web"), "kubernetes://foo"); err == nil || !strings.Contains(s.log.String(), "neither cert and key") {
		t.Error("a flood of made up names hides a malformed secret")
	}
}
