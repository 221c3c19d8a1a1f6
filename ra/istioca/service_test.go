package istioca_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// shop adds what most stories have: a pod of web and a ztunnel on node n1.
func shop(m *mesh, _ *parts) {
	m.clusters[home].account("web-token", "shop", "web", "web-0", "n1")
	m.clusters[home].account("ztunnel-token", "istio-system", "ztunnel", "ztunnel-1", "n1")
	m.pods.add(
		pod{cluster: home, namespace: "shop", name: "web-0", uid: "uid-web-0", account: "web", node: "n1"},
		pod{cluster: home, namespace: "istio-system", name: "ztunnel-1", uid: "uid-ztunnel-1", account: "ztunnel", node: "n1"},
	)
}

func TestSidecarGetsTheNameOfItsServiceAccount(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		got := m.as(conn, "web-token", home).must(wish{identity: web, seconds: 3600})
		if got.between != 1 || len(got.roots) != 1 {
			t.Errorf("%d intermediates and %d roots", got.between, len(got.roots))
		}
		if life := time.Until(got.leaf.NotAfter); life != time.Hour {
			t.Errorf("the certificate lives for %s", life)
		}
		if m.last() != istioca.Issued {
			t.Errorf("the event is %q", m.last())
		}
	})
}

func TestSidecarIsServedByAnAuthorityThatSignsWhatTheCSRNames(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.engine.Authorities[0].Client = struct{ ca.Client }{m.ca} // without names-from-request
	}, func(_ *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		key := must(rsa.GenerateKey(rand.Reader, 2048))
		c := m.as(conn, "web-token", home)
		c.must(wish{identity: web, key: key, csr: sidecarCSR(key, web)})
		c.refused(wish{identity: web, csr: csrWith(newKey(), web, pkix.Name{Organization: []string{"system:masters"}})}, codes.PermissionDenied)
	})
}

// Istio's agent sends CertSigner always, and ClusterID also without a value.
func TestEmptyTextsOfARequestAreAbsent(t *testing.T) {
	inBubble(t, shop, func(_ *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		for _, fields := range []map[string]any{
			nil, {}, {"CertSigner": ""}, {"ImpersonatedIdentity": ""}, {"CertSigner": "", "ImpersonatedIdentity": ""},
		} {
			c := m.as(conn, "web-token", "")
			c.metadata = append(c.metadata, "ClusterID", "")
			c.must(wish{identity: web, fields: fields})
		}
		m.as(conn, "ztunnel-token", home).must(wish{identity: ztunnel, fields: map[string]any{"ImpersonatedIdentity": ""}})
	})
}

func TestCallerWithoutClusterIDIsOfTheHomeCluster(t *testing.T) {
	inBubble(t, shop, func(_ *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.as(conn, "web-token", "").must(wish{identity: web})
	})
}

func TestCallerOfAnotherClusterGetsThatClustersName(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		m.clusters[west].account("west-token", "shop", "web", "", "")
	}, func(_ *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.as(conn, "west-token", west).must(wish{identity: "spiffe://west.local/ns/shop/sa/web"})
	})
}

func TestMachineGetsItsNameByOIDC(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		for _, cluster := range []string{"", "vm", home, "east"} { // agents send the mesh's
			m.as(conn, m.issuer.token(t, machine, nil), cluster).must(wish{identity: machine})
		}
		if asked := m.clusters[home].asked; asked > 0 {
			t.Errorf("an API server saw the issuer's token %d times", asked)
		}
	})
}

func TestNamesOfTheCSRGrantNothing(t *testing.T) {
	inBubble(t, shop, func(_ *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		key := newKey()
		m.as(conn, "web-token", home).must(wish{identity: web, key: key, csr: csrOf(key, ztunnel)})
	})
}

func TestLifetimeAskedForIsBounded(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.as(conn, "web-token", home).must(wish{identity: web}) // what the CA backdates is known by now
		for asked, want := range map[int64]time.Duration{0: 24 * time.Hour, 1<<63 - 1: 24 * time.Hour, 7200: 2 * time.Hour} {
			got := m.as(conn, "web-token", home).must(wish{identity: web, seconds: asked})
			if life := time.Until(got.leaf.NotAfter); life != want {
				t.Errorf("of %d seconds asked for, %s are granted, want %s", asked, life, want)
			}
		}
	})
}

func TestRootsAreTheLastElementDuringAnOverlapAsWell(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		next := certtest.Root(t)
		m.as(conn, "web-token", home).must(wish{identity: web})
		m.ca.Set(func() { m.ca.Published = append(m.ca.Published, next.Cert) })
		got := m.as(conn, "web-token", home).must(wish{identity: web})
		if len(got.roots) != 2 {
			t.Errorf("there are %d roots in the last element", len(got.roots))
		}
	})
}

func TestNodeProxyGetsCertificatesOfThePodsOnItsNode(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		for _, name := range []string{"a", "b", "c"} {
			m.pods.add(pod{cluster: home, namespace: "shop", name: name, uid: name, account: name, node: "n1"})
		}
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1") // one connection for all
		defer conn.Close()
		proxy := m.as(conn, "ztunnel-token", home)
		for _, name := range []string{"a", "b", "c", "web"} {
			proxy.must(impersonating("spiffe://cluster.local/ns/shop/sa/" + name))
		}
		proxy.must(wish{identity: ztunnel})
		if n := len(m.ca.Requests()); n != 5 {
			t.Errorf("the CA was asked %d times", n)
		}
	})
}

func TestCertSignerChoosesTheRulesOfItsDoor(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		other := ratest.NewCABelow(t)
		p.engine.Authorities = append(p.engine.Authorities, ra.Authority{Name: "other", Client: other})
		for i, r := range p.rules {
			if r.Name == "fast" {
				p.rules[i].Match.Namespaces, p.rules[i].Authority = []string{"shop"}, "other"
			}
		}
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		got := c.must(wish{identity: web, fields: map[string]any{"CertSigner": "fast"}})
		if len(m.ca.Requests()) != 0 || got.roots[0].Equal(m.ca.Root.Cert) {
			t.Error("the authority of the other door signed")
		}
		c.must(wish{identity: web})
		if len(m.ca.Requests()) != 1 {
			t.Error("the authority of the door without CertSigner did not sign")
		}
	})
}

func TestNamesOfTheCSRAreHeldAgainstThePolicyWhereAsked(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.HoldNames = true
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		c.must(wish{identity: web})
		if why := c.refused(wish{csr: csrOf(newKey(), ztunnel)}, codes.PermissionDenied); !strings.Contains(why.Message(), ztunnel) {
			t.Errorf("the client gets: %s", why.Message())
		}
		c.refused(wish{csr: "no CSR"}, codes.InvalidArgument)
		if n := len(m.ca.Requests()); n != 1 {
			t.Errorf("the CA was asked %d times", n)
		}
	})
}

func TestHeldCSRMayHaveFewerNamesThanTheRuleGives(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.HoldNames = true
		for i := range p.rules {
			p.rules[i].Names.DNSNames = []string{"{serviceAccount}.{namespace}.svc"}
		}
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		key := newKey()
		for _, names := range [][]string{nil, {"web.shop.svc"}} {
			c.must(wish{identity: web, key: key, csr: csrFrom(key, &x509.CertificateRequest{DNSNames: names})})
		}
		more := &x509.CertificateRequest{DNSNames: []string{"web.shop.svc", "db.shop.svc"}}
		c.refused(wish{identity: web, csr: csrFrom(key, more)}, codes.PermissionDenied)
		if got := c.must(wish{identity: web, key: key, csr: sidecarCSR(key, web)}); !slices.Equal(got.leaf.DNSNames, []string{"web.shop.svc"}) {
			t.Errorf("the certificate has %v", got.leaf.DNSNames)
		}
	})
}

func TestConfigurationTakenAwayRefusesAtOnce(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.as(conn, "web-token", home).must(wish{identity: web})
		if err := m.engine.SetPolicy(must(ra.NewPolicy(home, nil))); err != nil {
			t.Fatal(err)
		}
		m.as(conn, "web-token", home).refused(wish{identity: web}, codes.PermissionDenied)
	})
}
