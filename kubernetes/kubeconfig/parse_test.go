package kubeconfig

import (
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

func TestInlineKubeconfigIsAccepted(t *testing.T) {
	cert, key := pair(t)
	other := "\n- name: unused\n  user: {exec: {command: /bin/evil, apiVersion: client.authentication.k8s.io/v1}}"
	for name, text := range map[string]string{
		"a token":                       file(server+"\n"+goodCA+cert, bearer),
		"a client certificate":          file(server+"\n"+goodCA+cert, "client-certificate-data: "+cert+"\nclient-key-data: "+key),
		"the system's roots":            file(server, bearer),
		"a path":                        file("server: https://rancher.example.org/k8s/clusters/c-1/", bearer),
		"a TLS server name":             file(server+"\ntls-server-name: kubernetes.default.svc", bearer),
		"an IPv6 address":               file("server: https://[2001:db8::1]:6443", bearer),
		"an api-version in the cluster": file(server+"\napi-version: v1", bearer),
		"a separator at both ends":      "---\n" + file(server, bearer) + "---\n",
		"JSON": `{"current-context":"m","contexts":[{"name":"m","context":{"cluster":"c","user":"u"}}],
			"clusters":[{"name":"c","cluster":{"server":"https://api.example.org"}}],"users":[{"name":"u","user":{"token":"` + token + `"}}]}`,
		"an exec that the current context does not use": strings.TrimRight(file(server, bearer), "\n") + other,
	} {
		config, err := Parse([]byte(text), Rules{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if proxy, err := config.Proxy(&http.Request{}); proxy != nil || err != nil {
			t.Errorf("%s: the proxy is %v, %v", name, proxy, err)
		}
		if config.UserAgent != "" || config.QPS < 20 || config.Burst < 20 || config.Timeout != 0 || config.Dial == nil {
			t.Errorf("%s: %+v", name, config)
		}
	}
}

// refused is a kubeconfig for each field that is no inline data.
var refused = map[string]string{
	"http":                     file("server: http://api.example.org", bearer),
	"certificate-authority":    file(server+"\ncertificate-authority: /etc/passwd", bearer),
	"insecure-skip-tls-verify": file(server+"\ninsecure-skip-tls-verify: true", bearer),
	"proxy-url":                file(server+"\nproxy-url: http://proxy.example.org:3128", bearer),
	"client-certificate":       file(server, bearer+"\nclient-certificate: /etc/passwd"),
	"client-key":               file(server, bearer+"\nclient-key: /etc/passwd"),
	"tokenFile":                file(server, bearer+"\ntokenFile: /etc/passwd"),
	"exec":                     file(server, execUser),
	"auth-provider":            file(server, "auth-provider: {name: gcp}"),
	"as":                       file(server, bearer+"\nas: admin"),
	"as-uid":                   file(server, bearer+"\nas-uid: '1'"),
	"as-groups":                file(server, bearer+"\nas-groups: ['system:masters']"),
	"as-user-extra":            file(server, bearer+"\nas-user-extra: {scopes: [all]}"),
	"username":                 file(server, bearer+"\nusername: admin"),
	"password":                 file(server, bearer+"\npassword: "+password),
}

func TestNonInlineFieldIsRefusedByName(t *testing.T) {
	if got := Fields(); len(got) != len(refused) {
		t.Errorf("of %q, %d are tested", got, len(refused))
	}
	for name, text := range refused {
		want := `"` + name + `"`
		if name == "http" {
			want = "http, without TLS"
		}
		_, err := Parse([]byte(text), Rules{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "passwd") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One field allowed allows no other.
func TestRuleAllowsOnlyItsField(t *testing.T) {
	for name, text := range refused {
		_, err := Parse([]byte(text), Rules{Allow: []string{name}})
		if err != nil && (strings.Contains(err.Error(), "is not allowed") || strings.Contains(err.Error(), "without TLS")) {
			t.Errorf("%s is allowed, and refused: %v", name, err)
		}
		others := slices.DeleteFunc(Fields(), func(f string) bool { return f == name })
		if _, err := Parse([]byte(text), Rules{Allow: others}); err == nil {
			t.Errorf("%s is taken where only the others are allowed", name)
		}
	}
}

func TestMalformedKubeconfigIsNotQuoted(t *testing.T) {
	cert, key := pair(t)
	otherCert, _ := pair(t)
	good := file(server, bearer)
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                    {"", "empty"},
		"blank":                      {" \n\t", "empty"},
		"too long":                   {good + "#" + strings.Repeat("x", MaxSize), "larger than 1048576 bytes"},
		"no YAML":                    {"users: [" + token, "not valid YAML"},
		"a secret as an alias":       {file(server, "password: *"+password), "not valid YAML"},
		"an alias":                   {strings.Replace(good, "name: main\n  context:", "name: &n main\n  x: *n\n  context:", 1), "aliases are not allowed (line"},
		"a bomb":                     {"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "aliases are not allowed (line 1)"},
		"a merge":                    {file(server, "<<: {token: x}"), "merged"},
		"a key twice":                {file(server, bearer+"\ntoken: other"), "duplicate"},
		"a key twice, in two cases":  {file(server, bearer+"\nTOKEN: other"), "duplicate"},
		"deep":                       {"extensions: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "nested"},
		"wide":                       {"extensions: [" + strings.Repeat("a,", 30000) + "]", "too many values"},
		"two documents":              {good + "---\n" + good, "more than one YAML document"},
		"an unknown field":           {file(server, bearer+"\n"+password+": x"), "unknown"},
		"an unknown field's place":   {file(server+"\n"+password+": x", bearer), "(line 11, in clusters.0.cluster)"},
		"one that is nested":         {file(server+"\n"+password+": {"+password+": {x: y}}", bearer), "(line 11, in clusters.0.cluster)"},
		"an unknown top field":       {password + ": x\n" + good, "(line 1, in the top level)"},
		"another kind of value":      {file(server, "token: ["+token+"]"), "malformed (line 14, users.0.user.token): "},
		"another kind in a cluster":  {file(server+"\ninsecure-skip-tls-verify: 'x'", bearer), "malformed (line 11, clusters.0.cluster.insecure-skip-tls-verify): "},
		"another kind in a map":      {file(server, "auth-provider: {name: x, config: {"+password+": [x]}}"), "(line 14, users.0.user.auth-provider.config): "},
		"another kind of extra":      {file(server, "as-user-extra: {"+password+": {a: b}}"), "(line 14, users.0.user.as-user-extra): "},
		"three documents":            {good + "---\n---\n" + good, "more than one YAML document"},
		"a second, empty mapping":    {good + "---\n{}\n", "more than one YAML document"},
		"another kind of file":       {strings.Replace(good, "kind: Config", "kind: Secret", 1), `must be "v1" and "Config"`},
		"not base64":                 {file(server+"\n"+goodCA+"'"+password+"!'", bearer), "malformed"},
		"not UTF-8":                  {good + "\xff", "UTF-8"},
		"a control character":        {good + "\x1b[2J", "control character"},
		"an escaped one":             {file(server, `token: "a\x00b"`), "control character"},
		"a bidirectional override":   {good + "# \u202e", "control character"},
		"a name twice":               {strings.Replace(good, "users:\n", "users:\n- name: reader\n  user: {token: x}\n", 1), "duplicate name"},
		"no current-context":         {strings.Replace(good, "current-context: main", "", 1), "no current-context"},
		"an unknown current-context": {strings.Replace(good, "current-context: main", "current-context: x", 1), "an unknown context"},
		"an unknown user":            {strings.Replace(good, "user: reader", "user: x", 1), "unknown cluster or user"},
		"an unknown cluster":         {strings.Replace(good, "cluster: east", "cluster: x", 1), "unknown cluster or user"},
		"no credential":              {file(server, "extensions: []"), "no credential"},
		"a key without certificate":  {file(server, bearer+"\nclient-key-data: "+key), "has only one of"},
		"a certificate without key":  {file(server, "client-certificate-data: "+cert), "has only one of"},
		"a key of another":           {file(server, "client-certificate-data: "+otherCert+"\nclient-key-data: "+key), "private key does not match"},
		"roots that are none":        {file(server+"\n"+goodCA+base64.StdEncoding.EncodeToString([]byte(password)), bearer), "certificate-authority-data: it holds no PEM block"},
		"a token with a line break":  {file(server, "token: |\n      "+token+"\n      Host: evil"), "printable"},
		"a TLS server name":          {file(server+"\ntls-server-name: 'a b'", bearer), "tls-server-name"},
	} {
		_, err := Parse([]byte(test.text), Rules{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, not %q", name, err, test.want)
		}
		if err != nil && (strings.Contains(err.Error(), token[:20]) || strings.Contains(err.Error(), password[:12]) || len(err.Error()) > 600) {
			t.Errorf("%s: it quotes: %v", name, err)
		}
	}
}

// Whoever wrote the kubeconfig may be a stranger, and a large key costs much.
func TestKeySizesAreBounded(t *testing.T) {
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	cert, key := pair(t)
	dear := encode("CERTIFICATE", certtest.Costly(t, certtest.CostlyKey(9000, 65537)))
	for name, test := range map[string]struct{ text, want string }{
		"a root's":        {file(server+"\n"+goodCA+dear, bearer), "certificate-authority-data: PEM block 1 has an RSA key of 9000 bits"},
		"a certificate's": {file(server, "client-certificate-data: "+dear+"\nclient-key-data: "+key), "client-certificate-data: PEM block 1 has an RSA key of 9000 bits"},
		"the client's":    {file(server, "client-certificate-data: "+cert+"\nclient-key-data: "+encode("RSA PRIVATE KEY", make([]byte, 20<<10))), "client-key-data: its PEM block"},
	} {
		if _, err := Parse([]byte(test.text), Rules{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, not %q", name, err, test.want)
		}
	}
}

func TestInvalidRulesAreRefused(t *testing.T) {
	for _, rules := range []Rules{{Allow: []string{"token-file"}}, {Servers: []string{"*"}}, {Servers: []string{"https://api.example.org"}}, {Servers: []string{"10.0.0.0/99"}}, {Servers: []string{""}}} {
		if err := rules.Check(); err == nil {
			t.Errorf("%+v is taken", rules)
		}
		if _, err := Parse([]byte(file(server, bearer)), rules); err == nil || !strings.Contains(err.Error(), "rules") {
			t.Errorf("%+v: %v", rules, err)
		}
	}
	if err := (Rules{Allow: Fields(), Servers: []string{"api.example.org", "*.example.org", "10.0.0.0/8", "::1"}}).Check(); err != nil {
		t.Error(err)
	}
}

// client-go adds the credential to each request, also one that follows a redirect.
func TestCredentialDoesNotFollowRedirect(t *testing.T) {
	var leaked atomic.Int32
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	defer elsewhere.Close()
	asked := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Error("the server was asked without the token")
		}
		http.Redirect(w, r, elsewhere.URL+"/", http.StatusTemporaryRedirect)
	}))
	defer asked.Close()
	rules := Rules{Allow: []string{"insecure-skip-tls-verify"}}
	config, err := Parse([]byte(file("server: "+asked.URL+"\ninsecure-skip-tls-verify: true", bearer)), rules)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	reply, err := client.Get(asked.URL + "/version")
	if err == nil {
		_, _ = io.Copy(io.Discard, reply.Body)
		reply.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "redirect") || leaked.Load() != 0 {
		t.Errorf("%v; the other server was asked %d times", err, leaked.Load())
	}
}
