package kubeca

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func b64(content []byte) string { return base64.StdEncoding.EncodeToString(content) }

// kubeconfig has the context "shop" with these fields of the cluster and the user, and others.
func (c *cluster) kubeconfig(t *testing.T, cluster, user string) setting.File {
	t.Helper()
	return setting.File(c.write(t, "kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: shop
contexts:
- {name: other, context: {cluster: other, user: other}}
- {name: shop, context: {cluster: c, user: u, namespace: shop}}
clusters:
- {name: other, cluster: {server: "https://127.0.0.1:1"}}
- {name: c, cluster: {server: "%s", extensions: [], %s}}
users:
- {name: other, user: {token: other}}
- {name: u, user: {%s}}
preferences: {}
`, c.URL, cluster, user)))
}

// outside are settings for an issuer by a kubeconfig.
func outside(file setting.File) Settings {
	return Settings{Issuer: &Issuer{Name: "mesh"}, Kubeconfig: file}
}

func TestKubeconfigsOfAllKindsWork(t *testing.T) {
	c := newCluster(t)
	c.TLS.ClientAuth = tls.RequestClientCert
	chain, key := testkit.Pair(t, catest.NewCA(catest.Options{}), testkit.Identity(t, "", []string{"agent"}, nil))
	c.write(t, "agent.pem", chain)
	c.write(t, "agent-key.pem", key)
	inline := "certificate-authority-data: " + b64(mustRead(t, c.file("root.pem")))
	for name, one := range map[string]struct{ cluster, user string }{
		"token":             {inline, "token: " + ourToken.Reveal()},
		"files":             {"certificate-authority: root.pem", "tokenFile: token"},
		"absolute files":    {"certificate-authority: " + c.file("root.pem"), "tokenFile: " + c.file("token")},
		"file before token": {inline, "tokenFile: token, token: stale"},
		"certificate":       {inline + ", tls-server-name: example.com", "client-certificate-data: " + b64(chain) + ", client-key-data: " + b64(key)},
		"certificate files": {inline, "client-certificate: agent.pem, client-key: agent-key.pem"},
	} {
		t.Run(name, func(t *testing.T) { sign(t, c, open(t, outside(c.kubeconfig(t, one.cluster, one.user)))) })
	}
	chosen := outside(c.kubeconfig(t, inline, "token: x"))
	chosen.Context = "other"
	if to, err := chosen.access(""); err != nil || to.url.Host != "127.0.0.1:1" || to.token != "other" {
		t.Errorf("%s, %v", to.url.Host, err)
	}
}

func TestRequestTokenReplacesCredentialOfKubeconfig(t *testing.T) {
	c := newCluster(t)
	chain, key := testkit.Pair(t, catest.NewCA(catest.Options{}), testkit.Identity(t, "", []string{"agent"}, nil))
	settings := outside(c.kubeconfig(t, "disable-compression: true", "client-certificate-data: "+b64(chain)+", client-key-data: "+b64(key)))
	settings.UseRequestToken = true
	to, err := settings.access(ourToken)
	if err != nil || to.token != ourToken || len(to.tls.Certificates) > 0 {
		t.Errorf("%d certificates, %v", len(to.tls.Certificates), err)
	}
}

// What is at a wrong place may be a credential: no error quotes it.
func TestWrongKubeconfigIsRefusedAndNotQuoted(t *testing.T) {
	c := newCluster(t)
	chain, key := testkit.Pair(t, catest.NewCA(catest.Options{}), testkit.Identity(t, "", []string{"agent"}, nil))
	_, other := testkit.Pair(t, catest.NewCA(catest.Options{}), testkit.Identity(t, "", []string{"agent"}, nil))
	for says, one := range map[string]struct{ cluster, user string }{
		"it has exec, and the provider starts no program": {"", "exec: {command: sesame}"},
		"it has auth-provider":                            {"", "auth-provider: {name: sesame}"},
		"it has insecure-skip-tls-verify":                 {"insecure-skip-tls-verify: true", ""},
		"the cluster of the context: it has a field":      {"sesame: sesame", ""},
		"the user of the context: it has a field":         {"", "password: sesame"},
		"the user of the context: it has a field that":    {"", "as: sesame"},
		"certificate-authority-data is not base64":        {"certificate-authority-data: sesame!", ""},
		"certificate-authority has no certificates":       {"certificate-authority-data: " + b64([]byte("sesame")), ""},
		"client-certificate and client-key are not":       {"", "client-certificate-data: " + b64(chain) + ", client-key-data: " + b64(other)},
		"are not a certificate and its key":               {"", "client-key-data: " + b64(key)},
		"no such file":                                    {"certificate-authority: /nowhere", ""},
		"not the YAML of a kubeconfig":                    {"", "}, sesame: ["},
	} {
		_, err := outside(c.kubeconfig(t, one.cluster, one.user)).access("")
		if testkit.Fails(t, err, ourToken, ca.ErrUnavailable, says); strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s is quoted", err)
		}
	}
	for says, text := range map[string]string{
		"no such context": "{}", "names a cluster or a user": "{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}]}",
		"is not an https URL":       "{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}], clusters: [{name: b, cluster: {server: 'http://sesame@x'}}], users: [{name: c, user: {}}]}",
		"is not the name of one":    "{current-context: a, contexts: [{name: a, context: {cluster: b, user: c, namespace: ../sesame}}], clusters: [{name: b, cluster: {}}], users: [{name: c, user: {}}]}",
		"not the YAML":              "sesame",
		"YAML of a kubeconfig":      "{contexts: sesame}",
		"has no such context: set ": "{contexts: [{name: ''}]}",
	} {
		_, err := parseKubeconfig([]byte(text), "", "/")
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}], clusters: [{name: b, cluster: {server: 'https://x'}}], users: [{name: c, user: {token: x}}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if to, err := parseKubeconfig(text, "", t.TempDir()); err == nil && (to.url.Scheme != "https" || to.tls == nil || to.tls.InsecureSkipVerify) {
			t.Errorf("%+v", to.url)
		}
	})
}
