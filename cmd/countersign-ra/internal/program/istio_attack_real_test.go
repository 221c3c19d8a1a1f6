//go:build e2e && linux

package program

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// many is how many identities a proxy asks for that none of its pods has.
const many = 2_000

// raid is on a mesh of two clusters. Its caller has taken tokens of a pod and of the proxy of its
// node.
type raid struct {
	*testing.T
	home, east realm
	at         *replica
	conn       *grpc.ClientConn
	web, proxy string
	eastWeb    string
}

// tokens that an API server never made, and tokens that a call sends in other ways than proxies do.
func (r raid) tokens() map[string]row {
	const stranger = codes.Unauthenticated
	resigned := func(token string, change func(claims map[string]any)) row {
		return row{token: r.home.Resign(token, change), code: stranger}
	}
	claim := func(name string, value any) row {
		return resigned(r.web, func(claims map[string]any) { claims[name] = value })
	}
	inKubernetes := func(token, of, name, value string) row {
		return resigned(token, func(claims map[string]any) {
			claims["kubernetes.io"].(map[string]any)[of].(map[string]any)[name] = value
		})
	}
	// The other cluster's administrator signs what a token of home says.
	foreign := r.east.Resign(r.eastWeb, func(claims map[string]any) {
		clear(claims)
		maps.Copy(claims, r.claims(r.web))
	})
	elsewhere := inKubernetes(r.proxy, "node", "name", "n2")
	elsewhere.fields = impersonate(id("shop/api"))
	parts := strings.Split(r.proxy, ".")
	unsigned := row{token: parts[0] + "." + strings.Split(elsewhere.token, ".")[1] + "." + parts[2], fields: elsewhere.fields, code: stranger}
	return map[string]row{
		"an expired token":                        claim("exp", time.Now().Add(-10*time.Minute).Unix()),
		"a token that is not valid yet":           claim("nbf", time.Now().Add(time.Hour).Unix()),
		"a token of another issuer":               claim("iss", "https://evil.test"),
		"a token of another account":              inKubernetes(r.web, "serviceaccount", "name", "api"),
		"a token of another audience, signed":     claim("aud", []string{"vault"}),
		"a token of a pod that never was":         inKubernetes(r.web, "pod", "uid", "00000000-0000-0000-0000-000000000000"),
		"a token of an account that never was":    inKubernetes(r.web, "serviceaccount", "uid", "00000000-0000-0000-0000-000000000000"),
		"a proxy's token with another node":       elsewhere,
		"a proxy's token with a forged node":      unsigned,
		"a token without a signature":             {token: base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + strings.Split(r.web, ".")[1] + ".", code: stranger},
		"a token by the other cluster's key":      {token: foreign, code: stranger},
		"that, at the other cluster's API server": {token: foreign, cluster: "east", code: stranger},
		"no token":                      {pairs: []string{"clusterid", "home"}, code: stranger},
		"two tokens":                    {pairs: []string{"authorization", "Bearer " + r.web, "authorization", "Bearer " + r.proxy}, code: stranger},
		"a token as a password":         {pairs: []string{"authorization", "Basic " + r.web}, code: stranger},
		"two cluster IDs":               {pairs: []string{"authorization", "Bearer " + r.web, "clusterid", "home", "clusterid", "east"}, code: stranger},
		"a cluster ID in other letters": {token: r.web, cluster: "HOME", code: stranger},
	}
}

func (r raid) claims(token string) (claims map[string]any) {
	r.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		r.Fatal(err)
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		r.Fatal(err)
	}
	return claims
}

// wishes of a proxy that it may not have.
func (r raid) wishes() map[string]row {
	says := func(identity any, code codes.Code) row {
		return row{token: r.proxy, fields: map[string]any{"ImpersonatedIdentity": identity, "Node": "n2", "NodeName": "n2"}, code: code}
	}
	return map[string]row{
		"a proxy that says it is on another node": says(id("shop/api"), codes.PermissionDenied),
		"a path that climbs":                      says("spiffe://cluster.local/ns/shop/sa/../../istio-system/sa/istiod", codes.InvalidArgument),
		"an identity in capitals":                 says("spiffe://CLUSTER.LOCAL/ns/shop/sa/web", codes.InvalidArgument),
		"a list of identities":                    says([]any{webID, id("istio-system/istiod")}, codes.InvalidArgument),
	}
}

// badCSRs are ones of a caller who is known.
func (r raid) badCSRs() {
	r.Helper()
	_, good, err := csrFor(webID, ofAgent)
	if err != nil {
		r.Fatal(err)
	}
	block, _ := pem.Decode([]byte(good))
	block.Bytes[len(block.Bytes)-1] ^= 1
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		r.Fatal(err)
	}
	weakDER, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, weak)
	if err != nil {
		r.Fatal(err)
	}
	for name, csr := range map[string]string{
		"no CSR": "\n", "two CSRs": good + good, "a huge CSR": strings.Repeat("x", 33<<10), "a broken signature": string(pem.EncodeToMemory(block)),
		"a weak key": string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: weakDER})),
	} {
		err := patiently(func() error {
			_, _, err := as(r.T, r.conn, r.web, "").send(csr, nil, nil)
			return err
		})
		if grpcstatus.Code(err) != codes.InvalidArgument {
			r.Errorf("%s: %v", name, err)
		}
	}
}

// othersCSRs are worth the caller's own name alone: one for istiod, and one of another's.
func (r raid) othersCSRs() {
	r.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.Fatal(err)
	}
	istiod, err := url.Parse(id("istio-system/istiod"))
	if err != nil {
		r.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "istiod.istio-system.svc"}, DNSNames: []string{"istiod.istio-system.svc", caAddress}, URIs: []*url.URL{istiod},
	}, key)
	if err != nil {
		r.Fatal(err)
	}
	r.yields("a CSR for istiod", r.web, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), key, webID)

	replayed, csr, err := csrFor(webID, ofAgent)
	if err != nil {
		r.Fatal(err)
	}
	r.yields("a CSR", r.web, csr, replayed, webID)
	r.yields("the CSR of another", r.home.bound(r.home.pod("shop", "api", "api-1", "n2")), csr, replayed, id("shop/api"))
}

func (r raid) yields(name, token, csr string, key *ecdsa.PrivateKey, want string) {
	r.Helper()
	var leaf *x509.Certificate
	err := patiently(func() (err error) {
		leaf, _, err = as(r.T, r.conn, token, "").send(csr, key, nil)
		return err
	})
	if err != nil {
		r.Errorf("%s: %v", name, err)
	} else if got := leaf.URIs[0].String(); got != want {
		r.Errorf("%s yields %s, want %s", name, got, want)
	}
}

// obtained is a certificate that a caller gets, with its key.
func (r raid) obtained(c caller, identity string, fields map[string]any) tls.Certificate {
	r.Helper()
	key, csr, err := csrFor(identity, ofAgent)
	if err != nil {
		r.Fatal(err)
	}
	var leaf *x509.Certificate
	err = patiently(func() (err error) {
		leaf, _, err = c.send(csr, key, fields)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// presenting is who has a certificate and no token.
func (r raid) presenting(pair tls.Certificate) caller {
	r.Helper()
	return caller{r.T, r.at.dial(r.T, r.at.root(r.T), pair), nil}
}

// certificates renew themselves if a token without a pod began that, and by one copy alone.
func (r raid) certificates() {
	r.Helper()
	of := func(token string, identity string, fields map[string]any) tls.Certificate {
		return r.obtained(as(r.T, r.conn, token, ""), identity, fields)
	}
	mine := of(r.home.Token("shop", "web", "istio-ca"), webID, nil)
	for name, attack := range map[string]struct {
		pair   tls.Certificate
		fields map[string]any
		code   codes.Code
	}{
		"a pod's certificate":                      {of(r.web, webID, nil), nil, codes.PermissionDenied},
		"one that a proxy fetched":                 {of(r.proxy, webID, impersonate(webID)), nil, codes.PermissionDenied},
		"one of an identity that is not listed":    {of(r.home.Token("shop", "api", "istio-ca"), id("shop/api"), nil), nil, codes.PermissionDenied},
		"one of another CA":                        {*certtest.Root(r.T).Leaf(r.T, time.Hour, webID).TLS(), nil, codes.Unauthenticated},
		"one that is renewed, for another":         {mine, impersonate(id("shop/api")), codes.PermissionDenied},
		"one that is renewed, for its own by name": {mine, impersonate(webID), codes.PermissionDenied},
	} {
		if got, err := r.presenting(attack.pair).ask(attack.fields); grpcstatus.Code(err) != attack.code {
			r.Errorf("%s: %q, %v; want %s", name, got, err, attack.code)
		}
	}
	second := r.obtained(r.presenting(mine), webID, nil)
	third := r.obtained(r.presenting(second), webID, nil)
	for n, copied := range []tls.Certificate{mine, second, third} { // the first shows that there is a copy
		if got, err := r.presenting(copied).ask(nil); grpcstatus.Code(err) != codes.PermissionDenied {
			r.Errorf("certificate %d of a chain that somebody copied: %q, %v", n, got, err)
		}
	}
}

// crowd asks for many identities on one connection. Nobody else waits for that.
func (r raid) crowd() {
	r.Helper()
	conn := r.at.dial(r.T, r.at.root(r.T))
	key, csr, err := csrFor(webID, pkix.Name{})
	if err != nil {
		r.Fatal(err)
	}
	proxy := as(r.T, conn, r.proxy, "")
	var all sync.WaitGroup
	var next, odd atomic.Int64
	for range 48 {
		all.Go(func() {
			for n := next.Add(1); n <= many; n = next.Add(1) {
				err := patiently(func() error {
					_, _, err := proxy.send(csr, key, impersonate(id(fmt.Sprintf("shop/nobody-%d", n))))
					return err
				})
				if grpcstatus.Code(err) != codes.PermissionDenied && odd.Add(1) == 1 {
					r.Errorf("identity %d: %v", n, err)
				}
			}
		})
	}
	for next.Load() < many/4 { // in the midst of it
		time.Sleep(time.Millisecond)
	}
	least := int64(many) // this test may stand still in one of the calls
	for least > many/4 && next.Load() < many {
		before := next.Load()
		as(r.T, r.conn, r.web, "").gets(nil, webID)
		least = min(least, next.Load()-before)
	}
	all.Wait()
	r.Logf("%d of %d identities were asked for while another caller got a certificate", least, many)
	if least > many/4 {
		r.Errorf("another caller's certificate took as long as %d of the proxy's %d requests", least, many)
	}
	proxy.gets(impersonate(webID), webID)
}
