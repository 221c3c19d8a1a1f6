package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// explained returns a setting as Explain shows it, or fails.
func explained(t *testing.T, c Config, path string) Explained {
	t.Helper()
	for _, e := range c.Explain() {
		if e.Setting == path {
			return e
		}
	}
	t.Fatalf("%s is not explained", path)
	return Explained{}
}

func TestExplainNamesSourceOfEachSetting(t *testing.T) {
	c, _ := mustLoad(t, `
ttl: 1h
dev: true
providers: [{name: citadel, settings: {server_name: x, labels: {a: 1}, switch: true}, root_overlap: 0s}]
secrets: [{name: api.example, dns_names: [a.example]}]
`, []string{"POD_NAMESPACE=demo", "COUNTERSIGN_SERVICE_ACCOUNT=web", "CA_ADDR=i.svc:15012"},
		flag("socket.mode", "0660"), flag("providers.citadel.settings.zone", "z"))
	for _, want := range []Explained{
		{"trust_domain", "cluster.local", "default"},
		{"ttl", "1h0m0s", "countersign.yaml:2"},
		{"namespace", "demo", "POD_NAMESPACE"},
		{"service_account", "web", "COUNTERSIGN_SERVICE_ACCOUNT"},
		{"socket.mode", "0660", "--socket.mode"},
		{"default_provider", "citadel", "CA_ADDR"},
		{"providers.citadel.provider", "citadel", "its name"},
		{"providers.citadel.address", "i.svc:15012", "CA_ADDR"},
		{"providers.citadel.settings.server_name", "(set)", "countersign.yaml:4"},
		{"providers.citadel.settings.labels.a", "(set)", "countersign.yaml:4"},
		{"providers.citadel.settings.switch", true, "countersign.yaml:4"},
		{"providers.citadel.settings.zone", "(set)", "--providers.citadel.settings.zone"},
		{"providers.citadel.token.file", "./var/run/secrets/tokens/istio-token", "where Istio mounts it"},
		{"providers.citadel.root_overlap", "0s", "countersign.yaml:4"},
		{"secrets.default.spiffe_id", "spiffe://cluster.local/ns/demo/sa/web", "trust_domain, namespace, service_account"},
		{"secrets.default.ttl", "1h0m0s", "ttl"},
		{"secrets.default.provider", "citadel", "default_provider"},
		{"secrets.default.fallback_after", "30s", "default"},
		{"secrets.api.example.key_type", "ecdsa-p256", "key_type"},
		{"secrets.api.example.kind", "key-pair", "its name"},
	} {
		if got := explained(t, c, want.Setting); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := explained(t, c, "secrets.ROOTCA.providers"); got.From != "secrets.default" {
		t.Errorf("got %+v", got)
	}
}

func TestExplainNamesRuleForOnlyProvider(t *testing.T) {
	c, _ := mustLoad(t, working, nil)
	if got := explained(t, c, "default_provider"); got.From != "it is the only configured provider" {
		t.Errorf("got %+v", got)
	}
}

func TestExplainHidesWhatSchemaOrNameCallsSecret(t *testing.T) {
	c := locked(t, reference.Paths{"/pin", "/list/*", "/nested/phrase", "/by_file", "/by_command", "/wrong"}, `
providers:
  - name: citadel
    env: {SSL_CERT_DIR: geheim}
    settings:
      api_token: geheim
      Password: geheim
      keys: [geheim]
      client_secret: {value: geheim}
      pin_key: 12345678
      token_file: /run/token
      client_key_file: /run/key
      allow_token_over_plaintext: false
      empty_token: ""
      pin: geheim
      list: [geheim]
      nested: {phrase: geheim, credential: geheim, url: "https://u:geheim@ca.example"}
      by_file: {file: /run/secret}
      by_command: {command: [/bin/show, geheim]}
      wrong: {file: /run/secret, env: geheim}
      other: {file: /run/public}
`, append([]string{"CA_PROVIDER=Citadel", "CA_HEADER_x-tenant=geheim"}, identity...)...)
	text, err := json.Marshal(c.Explain())
	if err != nil || strings.Contains(string(text), "geheim") || strings.Contains(string(text), "12345678") {
		t.Errorf("a credential is shown: %s, %v", text, err)
	}
	for path, want := range map[string]any{
		"env.SSL_CERT_DIR": "(set)", "settings.headers.x-tenant": "(set)", "settings.api_token": "(set)", "settings.client_secret": "(set)",
		"settings.nested.url": "https://u:xxxxx@ca.example", "settings.token_file": "/run/token", "settings.client_key_file": "/run/key",
		"settings.allow_token_over_plaintext": false, "settings.empty_token": "", "settings.pin": "(set)", "settings.list": "(set)", "settings.nested.phrase": "(set)",
		"settings.by_file": map[string]any{"file": "/run/secret"}, "settings.by_command": map[string]any{"command": []string{"/bin/show"}}, "settings.wrong.file": "(set)",
		"settings.other.file": "/run/public",
	} {
		if got := explained(t, c, "providers.citadel."+path); !reflect.DeepEqual(got.Value, want) {
			t.Errorf("%s: got %v, want %v", path, got.Value, want)
		}
	}
}

// locked loads a file whose provider citadel is locked with these secret settings.
func locked(t *testing.T, secrets reference.Paths, file string, environ ...string) Config {
	t.Helper()
	c, _, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Environ: environ})
	if err == nil {
		err = c.Pin("countersign.lock", locks(lock.Provider{Name: "citadel", SHA256: strings.Repeat("0", 64), SecretSettings: secrets}))
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Complete() // what is wrong is explained, too
	return c
}

// Without the provider's word, or of another build, each setting may be secret; what Istio's
// variables say is public.
func TestExplainShowsNoSettingOfUnknownProvider(t *testing.T) {
	const file = "providers: [{name: citadel, settings: {phrase: geheim, nested: {more: geheim, list: [geheim]}, by: {file: /geheim}, switch: true}}]\n"
	environ := append([]string{"CA_ADDR=ca.example:15012"}, identity...)
	unpinned, _ := mustLoad(t, "dev: true\n"+file, environ)
	other := locked(t, nil, file, environ...)
	for _, c := range []Config{unpinned, other} {
		if text, err := json.Marshal(c.Explain()); err != nil || strings.Contains(string(text), "geheim") {
			t.Errorf("a setting is shown: %s, %v", text, err)
		}
		for path, want := range map[string]any{"phrase": "(set)", "nested.more": "(set)", "by.file": "(set)", "switch": true} {
			if got := explained(t, c, "providers.citadel.settings."+path); got.Value != want {
				t.Errorf("%s: got %v, want %v", path, got.Value, want)
			}
		}
	}
	if got := explained(t, unpinned, "providers.citadel.address"); got.Value != "ca.example:15012" {
		t.Errorf("the address is explained as %v", got)
	}
	overruled, _ := mustLoad(t, "dev: true\n"+file, environ, flag("providers.citadel.settings.address", "geheim"))
	if got := explained(t, overruled, "providers.citadel.settings.address"); got.Value != "(set)" {
		t.Errorf("got %+v", got)
	}
}

// A lock file changes what is shown, and not what has changed.
func TestLockedSecretsChangeNothing(t *testing.T) {
	const file = "providers: [{name: citadel, settings: {phrase: {file: /a}}}]\n"
	if got := Changed(locked(t, nil, file, identity...), locked(t, reference.Paths{"/phrase"}, file, identity...)); len(got) > 0 {
		t.Errorf("changed is %q", got)
	}
}

func TestExplainOfTokenBlockHidesCredentials(t *testing.T) {
	c, _ := mustLoad(t, withToken(`
sources: [{file: /token}, {command: [/bin/print-token]}]
exchange: [{url: "https://u:geheim@sts.example/token"}, {provider: true}]
`), nil)
	for path, want := range map[string]any{
		"sources.0.file": "/token", "exchange.0.url": "https://u:xxxxx@sts.example/token", "exchange.1.provider": true,
	} {
		if got := explained(t, c, "providers.file.token."+path); got.Value != want || !strings.HasPrefix(got.From, "countersign.yaml:") {
			t.Errorf("%s: got %+v, want %v", path, got, want)
		}
	}
	other, _ := mustLoad(t, withToken("{sources: [{file: /token}, {env: B}]}"), nil)
	short, _ := mustLoad(t, withToken("{sources: [{file: /token}]}"), nil)
	if got := Changed(short, other); !slices.Contains(got, "providers.file.token.sources.1.env") {
		t.Errorf("changed is %q", got)
	}
}
