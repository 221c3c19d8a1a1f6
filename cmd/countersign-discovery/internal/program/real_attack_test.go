//go:build e2e && linux

package program

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// everything is what an attacker asks for.
var everything = []string{
	plain, "kubernetes://foo-cacert", "kubernetes://bank/safe", "kubernetes://bank/safe-cacert", "kubernetes-gateway://bank/safe", "kubernetes-gateway://bank/safe-cacert",
	"kubernetes-gateway://shop/foo", "kubernetes-gateway://istio-system/remotes", "kubernetes://remotes", "kubernetes://istio-system/remotes",
}

const webID = "spiffe://cluster.local/ns/shop/sa/web"

// TestRealAttackers: the API server of east is its owner's, and allows everything.
func TestRealAttackers(t *testing.T) {
	home, east := newRealm(t, kubetest.Options{Name: "home"}), newRealm(t, kubetest.Options{Name: "east", AllowAll: true})
	home.account(shop, "web", true)
	home.account(bank, "web", true)
	for _, namespace := range []string{shop, bank, system} {
		east.account(namespace, "web", true)
	}
	home.put("shop/foo", tlsOf(t, "home foo"))
	home.put("bank/safe", tlsOf(t, "home safe"))
	home.kubeconfigs("remotes", data{"east": east.kubeconfig()})
	w := serveReal(t, home, east, atOnce)
	w.becomes(t, "east", "is synced", synced)
	// Of what strangers give reason for, 30 lines a minute are logged: first come those that are looked for.
	t.Run("a claim to another cluster", w.claimsInVain)
	t.Run("nobody is let in", w.letsNobodyIn)
	t.Run("what one says of oneself gives nothing", w.believesNobody)
	t.Run("a cluster that allows everything has nothing of another", w.trustsNoCluster)
	t.Run("a hostile kubeconfig", func(t *testing.T) { w.refusesKubeconfigs(t) })
	w.comes(t, w.bearer(t, "home/shop/web"), "delta", plain).gets(t, plain, "key home foo", w)
	silent(t, w)
}

func (w *world) letsNobodyIn(t *testing.T) {
	none := w.signs["home"].client(t, "")
	shown := func(signer string, lasts time.Duration, ids ...string) visitor {
		return visitor{tls: w.shows(t, w.signs[signer], lasts, ids...)}
	}
	// Each has a reason in the log, of which its client hears nothing.
	for name, a := range map[string]struct {
		visitor
		because string
	}{
		"without anything":                  {visitor{tls: none}, "no-credential"},
		"a token for another audience":      {visitor{tls: none, token: w.home.Token(shop, "web", "other")}, "audience"},
		"a token for the API server":        {visitor{tls: none, token: w.home.Token(shop, "web")}, "audience"},
		"a token of another cluster":        {visitor{tls: none, token: w.east.Token(shop, "web", "istio-ca")}, "kubernetes="},
		"a token for another cluster":       {visitor{tls: none, token: w.home.Token(shop, "web", "istio-ca"), cluster: "east"}, "kubernetes="},
		"a token of a cluster unheard of":   {visitor{tls: none, token: w.home.Token(shop, "web", "istio-ca"), cluster: "west"}, "unknown cluster .*west"},
		"a token that is none":              {visitor{tls: none, token: "eyJhbGciOiJub25lIn0.e30."}, "kubernetes="},
		"an expired certificate":            {shown("home", -time.Minute, webID), "expired"},
		"a certificate with two URIs":       {shown("home", time.Hour, webID, "spiffe://east.test/ns/shop/sa/web"), "has 2 URI names"},
		"a certificate without one":         {shown("home", time.Hour), "has 0 URI names"},
		"an unknown trust domain":           {shown("home", time.Hour, "spiffe://other.test/ns/shop/sa/web"), "unknown trust domain"},
		"another trust domain's CA":         {shown("east", time.Hour, webID), "signed by unknown authority"},
		"a CA of nobody":                    {visitor{tls: w.shows(t, namedAuthority(t, "evil"), time.Hour, webID)}, "signed by unknown authority"},
		"a CA that is called like the true": {visitor{tls: w.shows(t, namedAuthority(t, "Countersign self-signed root"), time.Hour, webID)}, "signed by unknown authority"},
	} {
		for protocol := range dialects {
			t.Run(name+", "+protocol, func(t *testing.T) {
				c := w.comes(t, a.visitor, protocol, everything...)
				if err := c.ends(t, w); status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != "the caller could not be authenticated" {
					t.Errorf("the client sees %v", err)
				}
				if c.count() > 0 {
					t.Errorf("it has %q", c.since(0))
				}
				w.log.await(t, "(stream rejected.*"+a.because+")")
			})
		}
	}
}

// forgeries are what a node may say of itself.
var forgeries = []map[string]any{
	{"CLUSTER_ID": "east"}, {"CLUSTER_ID": "home"}, {"CLUSTER_ID": "west"},
	{"NAMESPACE": "bank", "SERVICE_ACCOUNT": "web", "CONFIG_NAMESPACE": "bank"},
	{"CLUSTER_ID": "home", "NAMESPACE": "bank", "namespace": "bank", "LABELS": map[string]any{"namespace": "bank"}},
}

// believesNobody: of its own namespace and cluster, at most.
func (w *world) believesNobody(t *testing.T) {
	for i, node := range forgeries {
		for _, claim := range []string{"", "home", "east", "west"} {
			for credential, v := range w.visitors(t, "home/shop/web") {
				if credential == "token" && claim != "" && claim != "home" {
					continue // it is refused: see letsNobodyIn
				}
				v.node, v.cluster = node, claim
				t.Run(fmt.Sprintf("%s %d %q", credential, i, claim), func(t *testing.T) {
					w.hasAtMost(t, w.comes(t, v, "delta", everything...), "key home foo", "CA ca of home foo")
				})
			}
		}
	}
}

// claimsInVain: who claims a cluster that is not its own has nothing, not even of its own.
func (w *world) claimsInVain(t *testing.T) {
	v := w.bearer(t, "home/shop/web")
	v.node = map[string]any{"CLUSTER_ID": "east"}
	w.hasAtMost(t, w.comes(t, v, "delta", everything...))
	w.log.await(t, "(cluster claim not allowed for the caller)")
}

func (w *world) trustsNoCluster(t *testing.T) {
	for _, namespace := range []string{shop, bank, system} {
		for _, v := range w.visitors(t, "east/"+namespace+"/web") {
			for _, node := range append(forgeries, nil) {
				v.node = node
				w.hasAtMost(t, w.comes(t, v, "delta", everything...))
			}
		}
	}
}

// hasAtMost waits until all names are answered.
func (w *world) hasAtMost(t *testing.T, c *client, allowed ...string) {
	t.Helper()
	for _, name := range everything {
		eventually(t, func() bool { return c.of(name) != "" }, name+" is answered", w.log)
		if got := c.of(name); got != "-" && !slices.Contains(allowed, got) {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// refusesKubeconfigs: each is of an API server that is there, with one thing in it by which
// it would reach for more.
func (w *world) refusesKubeconfigs(t *testing.T) {
	touched := filepath.Join(t.TempDir(), "touched")
	bait := filepath.Join(t.TempDir(), "bait")
	write(t, bait, "eyJ-a-token-of-ours")
	for field, spoil := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"exec": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token, u.Exec = "", &clientcmdapi.ExecConfig{Command: "/usr/bin/touch", Args: []string{touched}, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		},
		"tokenFile":             func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token, u.TokenFile = "", bait },
		"client-certificate":    func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = bait },
		"client-key":            func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = bait },
		"certificate-authority": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = bait },
		"proxy-url":             func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://127.0.0.1:1" },
		"as":                    func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "system:admin" },
		"as-groups": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ImpersonateGroups = []string{"system:masters"}
		},
		"insecure-skip-tls-verify": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true
		},
		"auth-provider": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "gcp"}
		},
	} {
		id := "hostile-" + strings.ToLower(field)
		w.home.kubeconfigs(id, data{id: spoilt(t, w.east.kubeconfig(), spoil)})
		w.becomes(t, id, "is refused by its name", func(s *fleet.Status) bool {
			return s != nil && s.State == fleet.Failed && !s.Serving && strings.Contains(s.Fault, fmt.Sprintf("field %q is not allowed", field))
		})
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("the program was run")
	}
	// All the same, what there is of others is as it was.
	w.becomes(t, "east", "is synced", synced)
}

func spoilt(t *testing.T, text []byte, spoil func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	spoil(slices.Collect(maps.Values(config.Clusters))[0], slices.Collect(maps.Values(config.AuthInfos))[0])
	if text, err = clientcmd.Write(*config); err != nil {
		t.Fatal(err)
	}
	return text
}
