package istioca_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
)

// battlefield adds to the shop what attackers have and want.
func battlefield(m *mesh, p *parts) {
	shop(m, p)
	moves(p)
	h, w := m.clusters[home], m.clusters[west]
	h.account("unbound-proxy", "istio-system", "ztunnel", "", "")
	h.account("gone-token", "shop", "web", "web-gone", "n1")
	h.account("remade-token", "shop", "web", "web-1", "n1")
	h.account("done-token", "shop", "web", "web-done", "n1")
	h.account("moved-proxy", "istio-system", "ztunnel", "ztunnel-2", "n1") // it is on n2
	h.account("borrowed-token", "shop", "web", "ztunnel-1", "n1")
	h.account("nobody-token", "nowhere", "nobody", "", "")
	w.account("west-token", "shop", "web", "", "")
	w.account("west-proxy", "istio-system", "ztunnel", "ztunnel-w", "n1")
	for token, change := range map[string]func(*review){
		"vault-token":     func(r *review) { r.audience = "vault" },
		"expired-token":   func(r *review) { r.expired = true },
		"groupless-token": func(r *review) { r.groupless = true },
		"user-token":      func(r *review) { r.user = "system:node:n1" },
		"slash-token":     func(r *review) { r.user = "system:serviceaccount:shop:web/../admin" },
	} {
		r := review{user: "system:serviceaccount:shop:web", audience: "istio-ca"}
		change(&r)
		h.tokens[token] = r
	}
	m.pods.add(
		pod{cluster: home, namespace: "shop", name: "web-1", uid: "another-uid", account: "web", node: "n1"},
		pod{cluster: home, namespace: "shop", name: "web-done", uid: "uid-web-done", account: "web", node: "n1", finished: true},
		pod{cluster: home, namespace: "istio-system", name: "ztunnel-2", uid: "uid-ztunnel-2", account: "ztunnel", node: "n2"},
		pod{cluster: west, namespace: "istio-system", name: "ztunnel-w", uid: "uid-ztunnel-w", account: "ztunnel", node: "n1"},
		pod{cluster: home, namespace: "istio-system", name: "istiod-0", uid: "i", account: "istiod", node: "n2"},
		pod{cluster: home, namespace: "shop", name: "api-0", uid: "api", account: "api", node: "n2"},
		pod{cluster: home, namespace: "shop", name: "job-0", uid: "job", account: "job", node: "n1", finished: true},
		pod{cluster: home, namespace: "shop", name: "bare", uid: "bare", account: "", node: "n1"},
		pod{cluster: home, namespace: "batch", name: "sum-0", uid: "sum", account: "sum", node: "n1"},
		pod{cluster: west, namespace: "shop", name: "pay-0", uid: "pay", account: "pay", node: "n1"},
	)
}

// formerWeb is the ID of web in the trust domain that the home cluster comes from.
const formerWeb = "spiffe://former.local/ns/shop/sa/web"

// moves has the home cluster move to another trust domain.
func moves(p *parts) {
	p.rules[1].Names.Requested = []string{"spiffe://former.local/ns/{namespace}/sa/{serviceAccount}"}
}

// A sidecar that names another workload of the former trust domain gets its own ID of the present one.
func TestSidecarGetsItsOwnNameInBothTrustDomains(t *testing.T) {
	inBubble(t, battlefield, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		for _, other := range []string{"spiffe://former.local/ns/shop/sa/api", "spiffe://former.local/ns/bank/sa/web", "spiffe://west.local/ns/shop/sa/web"} {
			if got, err := m.as(conn, "web-token", home).ask(wish{identity: other}); err == nil || got.leaf != nil && got.leaf.URIs[0].String() != web {
				t.Errorf("%s: %v, %v", other, got.leaf, err)
			}
			if names := m.ca.Requests()[len(m.ca.Requests())-1]; names.SubjectID != web {
				t.Errorf("%s: the CA was asked for %s", other, names.SubjectID)
			}
		}
	})
}

// attack is a call that must get nothing.
type attack struct {
	token, cluster string
	metadata       []string // in place of the token's
	wish           wish
	code           codes.Code
	told           string // part of what the client sees
}

const nothing = "the caller could not be authenticated"

func fields(key string, value any) wish {
	return wish{identity: web, fields: map[string]any{key: value}}
}

// strangers' attacks end before their requests are read, and reveal nothing to them.
func strangersAttacks(t *testing.T, m *mesh) map[string]attack {
	signed := func(change func(header, claims map[string]any)) attack {
		return attack{token: m.issuer.token(t, machine, change)}
	}
	forged := m.issuer.token(t, machine, nil)
	forged = forged[:len(forged)-4] + "AAAA"
	return map[string]attack{
		"no token":                     {metadata: []string{"clusterid", home}},
		"two tokens":                   {metadata: []string{"authorization", "Bearer web-token", "authorization", "Bearer ztunnel-token"}},
		"a password":                   {metadata: []string{"authorization", "Basic d2ViOnRva2Vu"}},
		"an empty token":               {metadata: []string{"authorization", "Bearer "}},
		"a token with a space":         {metadata: []string{"authorization", "Bearer web-token and more"}},
		"a token of 17 KiB":            {token: strings.Repeat("x", 17<<10)},
		"a made-up token":              {token: "made-up"},
		"a token for another audience": {token: "vault-token"},
		"an expired token":             {token: "expired-token"},
		"a service account's name without groups": {token: "groupless-token"},
		"a node's token":                                {token: "user-token"},
		"a service account with slashes":                {token: "slash-token"},
		"a token of one cluster, ClusterID of another":  {token: "web-token", cluster: west},
		"a token of a remote cluster without ClusterID": {token: "west-token"},
		"an unknown ClusterID":                          {token: "web-token", cluster: "east"},
		"a ClusterID in other letters":                  {token: "web-token", cluster: "kubernetes"},
		"two ClusterIDs":                                {metadata: []string{"authorization", "Bearer web-token", "clusterid", home, "clusterid", west}},
		"a remembered token whose pod is gone":          {token: "gone-token"},
		"a token of a pod that was made anew":           {token: "remade-token"},
		"a token of a finished pod":                     {token: "done-token"},
		"a token with another account's pod":            {token: "borrowed-token"},
		"a proxy whose token names another node":        {token: "moved-proxy"},
		"an OIDC token with a forged signature":         {token: forged},
		"an OIDC token of alg none":                     signed(func(h, _ map[string]any) { h["alg"] = "none" }),
		"an OIDC token for another audience":            signed(func(_, c map[string]any) { c["aud"] = "vault" }),
		"an expired OIDC token":                         signed(func(_, c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }),
		"an OIDC token without an end":                  signed(func(_, c map[string]any) { delete(c, "exp") }),
		"an OIDC token of another issuer":               signed(func(_, c map[string]any) { c["iss"] = "https://evil.test" }),
		"an OIDC token of a mesh identity":              {token: m.issuer.token(t, web, nil)},
	}
}

// known callers' attacks are refused with a reason.
func knownCallersAttacks(t *testing.T, m *mesh) map[string]attack {
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	curve := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	csr, _ := pem.Decode([]byte(csrOf(newKey(), web)))
	csr.Bytes[len(csr.Bytes)-1] ^= 1
	broken := string(pem.EncodeToMemory(csr))
	deep := any("x")
	for range 200 {
		deep = []any{deep}
	}
	const denied, invalid = codes.PermissionDenied, codes.InvalidArgument
	proxy := func(w wish, code codes.Code, told string) attack {
		return attack{token: "ztunnel-token", cluster: home, wish: w, code: code, told: told}
	}
	sidecar := func(w wish, code codes.Code, told string) attack {
		return attack{token: "web-token", cluster: home, wish: w, code: code, told: told}
	}
	return map[string]attack{
		"no CSR":                                  sidecar(wish{csr: "\n"}, invalid, ""),
		"text that is not a CSR":                  sidecar(wish{csr: "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"}, invalid, ""),
		"two CSRs":                                sidecar(wish{csr: csrOf(newKey(), web) + csrOf(newKey(), web)}, invalid, ""),
		"a CSR with a broken signature":           sidecar(wish{csr: broken}, invalid, ""),
		"a CSR of 33 KiB":                         sidecar(wish{csr: strings.Repeat("x", 33<<10)}, invalid, "32768 are allowed"),
		"a message of 65 KiB":                     sidecar(wish{csr: strings.Repeat("x", 65<<10)}, codes.ResourceExhausted, "larger than max"),
		"a key of RSA 1024":                       sidecar(wish{key: weak}, invalid, ""),
		"a key on P-224":                          sidecar(wish{key: curve}, invalid, ""),
		"a Struct of 9 KiB":                       sidecar(fields("x", strings.Repeat("x", 9<<10)), invalid, "8192 are allowed"),
		"a Struct of many keys":                   sidecar(wish{fields: manyKeys(400)}, invalid, "8192 are allowed"),
		"a deep Struct":                           sidecar(fields("CertSigner", deep), invalid, "CertSigner"),
		"a negative lifetime":                     sidecar(wish{seconds: -1}, invalid, "validity_duration"),
		"the most negative lifetime":              sidecar(wish{seconds: -1 << 63}, invalid, "validity_duration"),
		"a CertSigner that is not served":         sidecar(fields("CertSigner", "root"), denied, "CertSigner"),
		"a CertSigner like a path":                sidecar(fields("CertSigner", "fast/../"), denied, "CertSigner"),
		"a CertSigner that is a number":           sidecar(fields("CertSigner", 1.0), invalid, "CertSigner"),
		"a CertSigner that no rule allows it":     sidecar(fields("CertSigner", "fast"), denied, "no rule matches"),
		"a namespace that no rule matches":        {token: "nobody-token", code: denied, told: "no rule matches"},
		"a sidecar impersonates":                  sidecar(impersonating(ztunnel), denied, "not a configured node proxy"),
		"a sidecar impersonates itself":           sidecar(impersonating(web), denied, "not a configured node proxy"),
		"an OIDC caller impersonates":             {token: m.issuer.token(t, machine, nil), wish: impersonating(web), code: denied, told: "reviewed"},
		"a proxy without a pod":                   {token: "unbound-proxy", wish: impersonating(web), code: denied, told: "not bound to a pod"},
		"a proxy of a cluster that has none":      {token: "west-proxy", cluster: west, wish: impersonating("spiffe://west.local/ns/shop/sa/pay"), code: denied, told: "not a configured node proxy"},
		"a pod on another node":                   proxy(impersonating("spiffe://cluster.local/ns/shop/sa/api"), denied, "runs on the node"),
		"istiod, which is on another node":        proxy(impersonating("spiffe://cluster.local/ns/istio-system/sa/istiod"), denied, "runs on the node"),
		"a finished pod":                          proxy(impersonating("spiffe://cluster.local/ns/shop/sa/job"), denied, "runs on the node"),
		"a pod without a service account":         proxy(impersonating("spiffe://cluster.local/ns/shop/sa/default"), denied, "runs on the node"),
		"a pod of another cluster's node":         proxy(impersonating("spiffe://cluster.local/ns/shop/sa/pay"), denied, "runs on the node"),
		"a namespace that the rules leave out":    proxy(impersonating("spiffe://cluster.local/ns/batch/sa/sum"), denied, "no rule matches"),
		"another trust domain":                    proxy(impersonating("spiffe://west.local/ns/shop/sa/web"), denied, "west.local"),
		"another pod's in the former domain":      proxy(impersonating("spiffe://former.local/ns/shop/sa/api"), denied, "runs on the node"),
		"a namespace without rules, formerly":     proxy(impersonating("spiffe://former.local/ns/batch/sa/sum"), denied, "no rule matches"),
		"the former domain, a CSR of the present": proxy(wish{identity: web, fields: map[string]any{"ImpersonatedIdentity": formerWeb}}, denied, formerWeb),
		"the present domain, a CSR of the former": proxy(wish{identity: formerWeb, fields: map[string]any{"ImpersonatedIdentity": web}}, denied, formerWeb),
		"the former domain, a CSR of another":     proxy(wish{identity: "spiffe://former.local/ns/shop/sa/api", fields: map[string]any{"ImpersonatedIdentity": formerWeb}}, denied, formerWeb),
		"the former domain of another cluster":    {token: "west-proxy", cluster: west, wish: impersonating(formerWeb), code: denied, told: "not a configured node proxy"},
		"no service account":                      proxy(impersonating("spiffe://cluster.local/ns/shop/sa/"), invalid, "form"),
		"a path that climbs":                      proxy(impersonating("spiffe://cluster.local/ns/shop/sa/../../x/sa/web"), invalid, "form"),
		"a service account with a colon":          proxy(impersonating("spiffe://cluster.local/ns/shop/sa/a:b"), invalid, "form"),
		"an identity of another form":             proxy(impersonating("spiffe://cluster.local/web"), invalid, "form"),
		"an identity that is not a SPIFFE ID":     proxy(impersonating("shop/web"), invalid, "form"),
		"an identity in capitals":                 proxy(impersonating("spiffe://CLUSTER.LOCAL/ns/shop/sa/web"), invalid, "form"),
		"a list of identities":                    proxy(fields("ImpersonatedIdentity", []any{web, ztunnel}), invalid, "ImpersonatedIdentity"),
		"a proxy that asks for a CertSigner, too": proxy(wish{identity: web, fields: map[string]any{"ImpersonatedIdentity": web, "CertSigner": "fast"}}, denied, "no rule matches"),
	}
}

func manyKeys(n int) map[string]any {
	all := map[string]any{}
	for range n {
		all[rand.Text()] = true
	}
	return all
}

func (m *mesh) suffers(name string, a attack) {
	m.t.Helper()
	conn := m.dial("192.0.2.1")
	defer conn.Close()
	c := m.as(conn, a.token, a.cluster)
	if a.metadata != nil {
		c.metadata = a.metadata
	}
	if a.wish.identity == "" {
		a.wish.identity = web
	}
	began := time.Now()
	st := c.refused(a.wish, a.code)
	if !strings.Contains(st.Message(), a.told) || a.told == nothing && st.Message() != nothing {
		m.t.Errorf("%s: the client gets: %s", name, st.Message())
	}
	if waited := time.Since(began); waited > 0 {
		m.t.Errorf("%s: the refusal took %s", name, waited)
	}
	if n := len(m.ca.Requests()); n > 0 {
		m.t.Fatalf("%s: the CA was asked", name)
	}
	if len(a.token) > 4 && strings.Contains(m.log.String(), a.token) {
		m.t.Errorf("%s: the token is in the log", name)
	}
}

func TestStrangersGetAndLearnNothing(t *testing.T) {
	inBubble(t, battlefield, func(t *testing.T, m *mesh) {
		for name, a := range strangersAttacks(t, m) {
			a.code, a.told = codes.Unauthenticated, nothing
			m.suffers(name, a)
		}
	})
}

// Each refusal of a known caller is in the audit log and counted as an outcome, whichever part refuses.
func TestKnownCallersGetNothingBeyondTheirOwn(t *testing.T) {
	var audit ratest.Audit
	var outcomes atomic.Int64
	attacks := 0
	inBubble(t, func(m *mesh, p *parts) {
		battlefield(m, p)
		p.engine.Audit = &audit
		p.engine.Observe = func(e ra.Event) {
			if e.Result != "issued" {
				outcomes.Add(1)
			}
		}
	}, func(t *testing.T, m *mesh) {
		for name, a := range knownCallersAttacks(t, m) {
			m.suffers(name, a)
			attacks++
		}
		// What honest callers get from the very same place.
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		for _, id := range []string{web, formerWeb} {
			m.as(conn, "ztunnel-token", home).must(impersonating(id))
			m.as(conn, "web-token", home).must(wish{identity: id})
		}
	})
	if lines := audit.Refusals(t); lines != attacks || int(outcomes.Load()) != attacks {
		t.Errorf("%d refusals in the audit log, %d outcomes, %d attacks", lines, outcomes.Load(), attacks)
	}
}

func TestPlaintextAndOldTLSAreRefused(t *testing.T) {
	inBubble(t, shop, func(_ *testing.T, m *mesh) {
		old := m.clientTLS()
		old.MaxVersion = 0x0303
		for _, with := range []credentials.TransportCredentials{insecure.NewCredentials(), credentials.NewTLS(old)} {
			conn := m.connect("192.0.2.1", with)
			m.as(conn, "web-token", home).refused(wish{identity: web}, codes.Unavailable)
			conn.Close()
		}
	})
}

func TestCertificateAloneIsRefused(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		with := m.clientTLS()
		with.Certificates = append(with.Certificates, *m.ca.Signs.Leaf(t, time.Hour, web).TLS(), *certtest.Root(t).TLS())
		conn := m.connect("192.0.2.1", credentials.NewTLS(with))
		defer conn.Close()
		m.as(conn, "made-up", home).refused(wish{identity: web}, codes.Unauthenticated)
		c := m.as(conn, "", home)
		c.metadata = nil
		c.refused(wish{identity: web}, codes.Unauthenticated)
	})
}

func TestTokenThatFailsIsTriedAtNoOtherAuthenticator(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		expired := m.issuer.token(t, machine, func(_, c map[string]any) { c["exp"] = 1 })
		// An API server with the same issuer would take it for a service account's.
		m.clusters[home].account(expired, "shop", "web", "", "")
		m.as(conn, expired, home).refused(wish{identity: web}, codes.Unauthenticated)
		if n := m.clusters[home].asked; n > 0 {
			t.Errorf("the API server was asked %d times", n)
		}
	})
}

func TestIssuerWithoutAClusterVerifiesNoCaller(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.IssuerClusters = nil
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		for _, cluster := range []string{"", "vm", home} {
			m.as(conn, m.issuer.token(t, machine, nil), cluster).refused(wish{identity: machine}, codes.Unauthenticated)
		}
	})
}

func TestAbsentClusterIsUnavailable(t *testing.T) {
	inBubble(t, shop, func(_ *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		m.clusters[home].away = true
		c.refused(wish{identity: web}, codes.Unavailable)
		m.clusters[home].away = false
		m.pods.away = errors.New("the watch is too old")
		c.refused(wish{identity: web}, codes.Unavailable)
		m.pods.away = nil
		c.must(wish{identity: web})
	})
}
