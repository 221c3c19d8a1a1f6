package kubeconfig

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

func FuzzKubeconfig(f *testing.F) {
	cert, key := pair(f)
	for _, text := range refused {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		file(server+"\n"+goodCA+cert, bearer), file(server, "client-certificate-data: "+cert+"\nclient-key-data: "+key),
		file(server, "password: *"+password), "a: &a [x]\nb: *a", file(server, `"token": "a\n"`), file(server, "<<: {token: x}"),
		`{"users":[{"user":{"TOKENFILE":"/etc/passwd"}}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := Parse(text, Rules{})
		if err != nil {
			checkQuotes(t, text, err.Error())
			return
		}
		u, err := url.Parse(config.Host)
		if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
			t.Errorf("the server is %q", config.Host)
		}
		if config.CAFile+config.CertFile+config.KeyFile+config.BearerTokenFile != "" {
			t.Errorf("a file is read: %+v", config)
		}
		if config.ExecProvider != nil || config.AuthProvider != nil || config.Insecure || config.Username+config.Password != "" {
			t.Errorf("it runs something, or is insecure: %+v", config)
		}
		if i := config.Impersonate; i.UserName != "" || i.UID != "" || len(i.Groups) > 0 || len(i.Extra) > 0 {
			t.Errorf("it acts as %+v", i)
		}
		if proxy, err := config.Proxy(&http.Request{URL: u}); proxy != nil || err != nil {
			t.Errorf("it uses the proxy %v, %v", proxy, err)
		}
	})
}

// checkQuotes looks for the secrets of the file in an error; a server's host, which
// is quoted, may be the same text.
func checkQuotes(t *testing.T, text []byte, said string) {
	t.Helper()
	var decoded clientcmdv1.Config
	if len(text) > MaxSize || yaml.Unmarshal(text, &decoded) != nil {
		return
	}
	for _, c := range decoded.Clusters {
		if u, err := url.Parse(c.Cluster.Server); err == nil && u.Hostname() != "" {
			said = strings.ReplaceAll(said, u.Hostname(), "")
		}
	}
	for _, u := range decoded.AuthInfos {
		for _, secret := range []string{u.AuthInfo.Token, u.AuthInfo.Password, string(u.AuthInfo.ClientKeyData)} {
			if len(secret) >= 20 && strings.Contains(said, secret) {
				t.Errorf("it quotes %q: %s", secret, said)
			}
		}
	}
}
