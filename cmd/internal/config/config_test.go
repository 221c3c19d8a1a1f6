package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const pin = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const working = `
namespace: demo
service_account: web
providers:
  - name: file
    sha256: ` + pin + `
    settings: {dir: ./ca}
`

// load reads and completes as main does.
func load(file string, environ []string, flags ...Assignment) (Config, []string, error) {
	c, warnings, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Environ: environ, Flags: flags})
	if err == nil {
		err = c.Complete()
	}
	return c, warnings, err
}

func mustLoad(t *testing.T, file string, environ []string, flags ...Assignment) (Config, []string) {
	t.Helper()
	c, warnings, err := load(file, environ, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return c, warnings
}

func flag(path, value string) Assignment { return Assignment{path, value, "--" + path} }

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := working + "ttl: 1h\n"
	for _, test := range []struct {
		name    string
		file    string
		environ []string
		flags   []Assignment
		want    time.Duration
	}{
		{"default", working, nil, nil, 24 * time.Hour},
		{"file over default", file, nil, nil, time.Hour},
		{"Istio's variable over file", file, []string{"SECRET_TTL=2h"}, nil, 2 * time.Hour},
		{"own variable over Istio's", file, []string{"COUNTERSIGN_TTL=3h", "SECRET_TTL=2h"}, nil, 3 * time.Hour},
		{"empty variable is not set", file, []string{"COUNTERSIGN_TTL=", "SECRET_TTL="}, nil, time.Hour},
		{"flag over environment", file, []string{"COUNTERSIGN_TTL=3h"}, []Assignment{flag("ttl", "4h")}, 4 * time.Hour},
		{"last flag wins", file, nil, []Assignment{flag("ttl", "4h"), flag("ttl", "5h")}, 5 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := mustLoad(t, test.file, test.environ, test.flags...)
			if c.TTL.Duration != test.want || c.Secrets[0].TTL.Duration != test.want {
				t.Errorf("ttl is %s, of default %s; want %s", c.TTL, c.Secrets[0].TTL, test.want)
			}
		})
	}
}

func TestEveryFlagIsAFileSetting(t *testing.T) {
	for _, s := range Settings() {
		c := defaults()
		if err := c.assign(Assignment{s.Path, "1", "--" + s.Flag}); err != nil && strings.Contains(err.Error(), "unknown") {
			t.Errorf("%s: %v", s.Flag, err)
		}
	}
}

func TestDefaultAndRootsExistImplicitly(t *testing.T) {
	c, _ := mustLoad(t, working, nil)
	if len(c.Secrets) != 2 {
		t.Fatalf("got %d secrets, want 2", len(c.Secrets))
	}
	leaf, roots := c.Secrets[0], c.Secrets[1]
	if leaf.Name != "default" || leaf.Kind != KeyPair || leaf.Provider != "file" || leaf.KeyType != "ecdsa-p256" ||
		leaf.SPIFFEID != "spiffe://cluster.local/ns/demo/sa/web" {
		t.Errorf("default is %+v", leaf)
	}
	if roots.Name != "ROOTCA" || roots.Kind != TrustBundle || !slices.Equal(roots.Providers, []string{"file"}) {
		t.Errorf("ROOTCA is %+v", roots)
	}
}

func TestDefaultEntrySetsDetails(t *testing.T) {
	c, _ := mustLoad(t, working+`
secrets:
  - {name: api, dns_names: [api.example.org], key_type: rsa-2048, ttl: 10m}
  - {name: default, dns_names: [web.example.org]}
`, nil)
	leaf, api := c.Secrets[0], c.Secrets[2]
	if leaf.Name != "default" || leaf.SPIFFEID != "" || leaf.DNSNames[0] != "web.example.org" || leaf.TTL.Duration != 24*time.Hour {
		t.Errorf("default is %+v", leaf)
	}
	if api.Name != "api" || api.KeyType != "rsa-2048" || api.TTL.Duration != 10*time.Minute || api.Kind != KeyPair {
		t.Errorf("api is %+v", api)
	}
}

func TestRootsComeFromProviderOfDefault(t *testing.T) {
	c, _ := mustLoad(t, `
dev: true
namespace: demo
service_account: web
default_provider: b
providers: [{name: a, provider: file}, {name: b, provider: file}]
secrets: [{name: default, provider: a}, {name: both, kind: trust-bundle, providers: [a, b]}]
`, nil)
	if got := c.Secrets[1].Providers; len(got) != 1 || got[0] != "a" {
		t.Errorf("ROOTCA is of %v, want a", got)
	}
	if got := c.Secrets[2].Providers; len(got) != 2 {
		t.Errorf("both is of %v, want a and b", got)
	}
}

func TestSetCreatesAndChangesNamedEntries(t *testing.T) {
	c, _ := mustLoad(t, "", nil,
		flag("namespace", "demo"), flag("service_account", "web"),
		flag("providers.file.sha256", strings.ToUpper(pin)),
		flag("providers.file.settings.dir", "./ca"),
		flag("providers.file.settings.self_signed", "true"),
		flag("providers.file.settings.labels.a", "b"), flag("providers.file.settings.labels.c", "3"),
		flag("providers.file.env.SSL_CERT_DIR", "/certs"),
		flag("providers.file.root_overlap", "0s"),
		flag("socket.allow_uids", "1000, 1001"),
		flag("secrets.default.dns_names", "a.example.org,b.example.org"))
	file := c.Providers[0]
	if file.SHA256 != pin || file.Settings["dir"] != "./ca" || file.Settings["self_signed"] != true ||
		!reflect.DeepEqual(file.Settings["labels"], map[string]any{"a": "b", "c": 3.0}) ||
		file.Env["SSL_CERT_DIR"] != "/certs" || file.RootOverlap == nil || file.RootOverlap.Duration != 0 {
		t.Errorf("provider is %+v", file)
	}
	if len(c.Socket.AllowUIDs) != 2 || c.Socket.AllowUIDs[1] != 1001 || len(c.Secrets[0].DNSNames) != 2 {
		t.Errorf("socket is %+v, default is %+v", c.Socket, c.Secrets[0])
	}
}

func TestTokenFileBelongsToItsProviderEntry(t *testing.T) {
	c, _ := mustLoad(t, `
dev: true
namespace: demo
service_account: web
default_provider: mesh
providers:
  - {name: mesh, provider: citadel}
  - {name: citadel, token: {file: /run/token, optional: true}}
  - {name: file}
`, nil)
	for i, want := range []string{"./var/run/secrets/tokens/istio-token", "/run/token", ""} {
		if got := c.Providers[i]; got.Token.File != want || got.Token.Optional != (i == 1) {
			t.Errorf("the token of %s is in %q", got.Name, got.Token.File)
		}
	}
}

func TestUnsetRootOverlapIsNil(t *testing.T) {
	c, _ := mustLoad(t, working, nil)
	if c.Providers[0].RootOverlap != nil {
		t.Errorf("root_overlap is %v, want nil", c.Providers[0].RootOverlap)
	}
}

func TestWrongSettingsAreOneSentenceEach(t *testing.T) {
	two := "providers: [{name: a, provider: file}, {name: b, provider: file}]\ndev: true\nnamespace: ns\nservice_account: s\n"
	for _, test := range []struct {
		name, file string
		want       string
	}{
		{"no YAML", "a: [", `countersign.yaml is not valid YAML: line 1`},
		{"a key twice", "ttl: 1h\nttl: 2h", `key "ttl" already set`},
		{"a list", "- a", `countersign.yaml holds no settings`},
		{"near key", "trust_doman: x", `unknown setting "trust_doman" in countersign.yaml: did you mean "trust_domain"?`},
		{"near key below", "socket: {pth: x}", `unknown setting "socket.pth" in countersign.yaml: did you mean "socket.path"?`},
		{"near key in an entry", "providers: [{name: file, sha265: x}]", `unknown setting "providers.file.sha265" in countersign.yaml: did you mean "providers.file.sha256"?`},
		{"far key", "log: {colour: red}", `unknown setting "log.colour" in countersign.yaml: known here: format, level`},
		{"key of what is not in the file", "providers: [{name: file, '-': x}]", `unknown setting "providers.file.-" in countersign.yaml: known here: accept_longer_ttl`},
		{"capital key", "TTL: 1h", `unknown setting "TTL" in countersign.yaml: did you mean "ttl"?`},
		{"no unit", "ttl: 20", `ttl is "20" in countersign.yaml: write a number with a unit`},
		{"bare mode", "socket: {mode: 0600}", `socket.mode is "384" in countersign.yaml: write octal permissions in quotes`},
		{"no list", "secrets: {name: a}", `secrets is a mapping in countersign.yaml: write a list`},
		{"no map", "log: debug", `log is "debug" in countersign.yaml: write settings below it, one of: format, level`},
		{"no bool", "dev: maybe", `dev is "maybe" in countersign.yaml: write true or false`},
		{"no text", "namespace: 7", `namespace is "7" in countersign.yaml: write text, in quotes`},
		{"no uid", "socket: {allow_uids: [-1]}", `socket.allow_uids.0 is "-1" in countersign.yaml: write a whole number`},
		{"no number", "rotation: {ratio: half}", `rotation.ratio is "half" in countersign.yaml: write a number`},
		{"no name", "providers: [{provider: file}]", `providers.0.name is not set: write 1 to 63`},
		{"bad name", "providers: [{name: ../x}]", `providers.0.name is "../x": write 1 to 63`},
		{"bad binary", "providers: [{name: a, provider: A/b}]", `providers.a.provider is "A/b": write the name`},
		{"no pin", "providers: [{name: file}]", `providers.file.sha256 is not set: write the SHA-256 of the binary, which "countersign provider list" shows`},
		{"short pin", "providers: [{name: file, sha256: abc}]", `providers.file.sha256 is "abc": write 64 hexadecimal digits`},
		{"same name", "dev: true\nproviders: [{name: a}, {name: a}]", `providers has "a" twice`},
		{"no unit of size", working + "    limits: {memory: 64M}", `providers.file.limits.memory is "64M" in countersign.yaml: write a number of bytes with a unit, such as 256Mi`},
		{"little memory", working + "    limits: {memory: 1Mi}", `providers.file.limits.memory is 1048576: write 67108864 or more`},
		{"few descriptors", working + "    limits: {descriptors: 31}", `providers.file.limits.descriptors is 31: write 32 or more`},
		{"few processes", working + "    limits: {processes: 1}", `providers.file.limits.processes is 1: write 32 or more`},
		{"little time", working + "    limits: {cpu: 0.001}", `providers.file.limits.cpu is 0.001: write 0.01 or more`},
		{"bad check", working + "    identity_check: none", `providers.file.identity_check is "none": must be exact, trust-domain or any`},
		{"bad overlap", working + "    root_overlap: -1s", `providers.file.root_overlap is -1s: write 0s or more`},
		{"no token to miss", working + "    token: {optional: true}", `providers.file.token has 0 sources`},
		{"bad default", working + "default_provider: x", `default_provider is "x": configured are file`},
		{"ratio", working + "rotation: {ratio: 1}", `rotation.ratio is 1: write more than 0 and less than 1`},
		{"ratio that is not a number", working + "rotation: {ratio: .nan}", `is not valid YAML`},
		{"jitter", working + "rotation: {jitter: -0.1}", `rotation.jitter is -0.1: write 0 or more`},
		{"no socket", working + "socket: {path: ''}", `socket.path is not set: write the path of a unix socket`},
		{"long socket", working + "socket: {path: " + strings.Repeat("s", 108) + "}", `the path has 108 bytes; a unix socket has at most 107`},
		{"open status", working + "status: {address: '0.0.0.0:80'}", `status.address is "0.0.0.0:80": write a loopback address`},
		{"named status", working + "status: {address: 'example.org:80'}", `status.address is "example.org:80": write a loopback address`},
		{"status without port", working + "status: {address: '127.0.0.1'}", `status.address is "127.0.0.1": write a loopback address`},
		{"log level", working + "log: {level: loud}", `log.level is "loud": must be debug, info, warn or error`},
		{"log format", working + "log: {format: xml}", `log.format is "xml": must be text or json`},
		{"key type", working + "key_type: dsa", `key_type is "dsa": must be ecdsa-p256`},
		{"lifetime", working + "ttl: 1ms", `ttl is 1ms: write 1s or more`},
		{"drain", working + "drain_timeout: -1s", `drain_timeout is -1s: write 0s or more`},
		{"trust domain", working + "trust_domain: 'Not A Domain'", `trust_domain is "Not A Domain": `},
		{"no identity", "dev: true\nproviders: [{name: file}]", `secrets.default has no identity: set namespace and service_account`},
		{"half an identity", "dev: true\nnamespace: ns\nproviders: [{name: file}]", `secrets.default has no identity`},
		{"secret without identity", working + "secrets: [{name: a}]", `secrets.a has no identity: write spiffe_id, dns_names or ip_addresses`},
		{"bad address", working + "secrets: [{name: a, ip_addresses: [1.2.3]}]", `secrets.a: IP address "1.2.3" is not valid`},
		{"bad kind", working + "secrets: [{name: a, kind: jwt}]", `secrets.a.kind is "jwt": must be key-pair or trust-bundle`},
		{"default as bundle", working + "secrets: [{name: default, kind: trust-bundle}]", `secrets.default.kind is "trust-bundle": clients expect a key-pair by that name`},
		{"default as token", working + "secrets: [{name: default, kind: jwt}]", `secrets.default.kind is "jwt": clients expect a key-pair`},
		{"roots as key", working + "secrets: [{name: ROOTCA, kind: key-pair}]", `secrets.ROOTCA.kind is "key-pair": clients expect a trust-bundle by that name`},
		{"nameless secret", working + "secrets: [{kind: key-pair}]", `secrets.0.name is not set`},
		{"same secret", working + "secrets: [{name: a, dns_names: [x]}, {name: a, dns_names: [y.example]}]", `secrets has "a" twice`},
		{"same default", working + "secrets: [{name: default}, {name: default}]", `secrets has "default" twice`},
		{"secret's key", working + "secrets: [{name: a, dns_names: [x], key_type: dsa}]", `secrets.a.key_type is "dsa"`},
		{"secret's lifetime", working + "secrets: [{name: a, dns_names: [x], ttl: -1s}]", `secrets.a.ttl is -1s: write 1s or more`},
		{"secret's provider", working + "secrets: [{name: a, dns_names: [x], provider: b}]", `secrets.a.provider is "b": configured are file`},
		{"a signer twice", working + "secrets: [{name: a, dns_names: [x], providers: [file, file]}]", `secrets.a.providers is [file file]: write each provider once`},
		{"a signer and signers", working + "secrets: [{name: a, dns_names: [x], provider: file, providers: [file]}]", `secrets.a.provider is "file": write either`},
		{"hasty", working + "secrets: [{name: a, dns_names: [x], fallback_after: -1s}]", `secrets.a.fallback_after is -1s: write more than 0s`},
		{"bundle that falls back", working + "secrets: [{name: r, kind: trust-bundle, fallback_after: 1s}]", `secrets.r.fallback_after is 1s: remove it`},
		{"which of two", two, `secrets.default.provider is not set: several providers are configured (a, b)`},
		{"bundle with identity", working + "secrets: [{name: r, kind: trust-bundle, dns_names: [x]}]", `secrets.r is a trust bundle: it has no identity`},
		{"bundle with both", working + "secrets: [{name: r, kind: trust-bundle, provider: file, providers: [file]}]", `secrets.r.provider is "file": write either`},
		{"proxy's command", working + "proxy: {command: ['']}", `proxy.command is not set: write a program`},
		{"no proxy's command", working + "proxy: {restart: always}", `proxy.command is not set: the other proxy settings need a program`},
		{"proxy's variable", working + "proxy: {command: [x], env: {'a=b': c}}", `proxy.env is "a=b": not a valid variable name`},
		{"proxy's variable that is not text", working + "proxy: {command: [x], env: {A: 12}}", `proxy.env.A is (set) in countersign.yaml: write text`},
		{"restart", working + "proxy: {command: [x], restart: sometimes}", `proxy.restart is "sometimes": must be on-failure, always or never`},
		{"locality's tries", working + "proxy: {command: [x], locality: {value: a, tries: -1}}", `proxy.locality.tries is "-1" in countersign.yaml: write a whole number`},
		{"stop timeout", working + "proxy: {command: [x], stop_timeout: -1s}", `proxy.stop_timeout is -1s: write 0s or more`},
		{"two reloads", working + "proxy: {command: [x], watch: {folders: [a]}, reload: {signal: HUP, hot_restart: true}}", `proxy.reload has more than one method: write one of signal`},
		{"no reload", working + "proxy: {command: [x], watch: {folders: [a]}}", `proxy.reload is not set: write how to reload the proxy`},
		{"reload of nothing", working + "proxy: {command: [x], reload: {signal: HUP}}", `proxy.watch.folders is not set: nothing would trigger the reload`},
		{"reload signal", working + "proxy: {command: [x], watch: {folders: [a]}, reload: {signal: KILL}}", `proxy.reload.signal is "KILL": must be HUP, QUIT, USR1, USR2 or WINCH`},
		{"reload command", working + "proxy: {command: [x], watch: {folders: [a]}, reload: {command: ['']}}", `proxy.reload.command is not set: write a program`},
		{"minimum delay", working + "proxy: {command: [x], watch: {min_delay: -1s}}", `proxy.watch.min_delay is -1s: write 0s or more`},
		{"epoch flag", working + "proxy: {command: [envoy, --base-id=1], watch: {folders: [a]}, reload: {hot_restart: true}}", `proxy.command is "--base-id=1": the agent sets this flag for proxy.reload.hot_restart`},
		{"drain time", working + "proxy: {command: [x], watch: {folders: [a]}, reload: {hot_restart: true, drain_time: 1500ms}}", `proxy.reload.drain_time is 1.5s: write whole seconds`},
		{"two localities", working + "proxy: {command: [x], locality: {value: a, file: b}}", `proxy.locality has more than one source: write one of value`},
		{"no locality", working + "proxy: {command: [x, '{locality}']}", `proxy.locality is not set: set the source of {locality}`},
		{"no locality for a variable", working + "proxy: {command: [x], env: {ZONE: '{locality}'}}", `proxy.locality is not set: set the source of {locality}`},
		{"headers without address", working + "proxy: {command: [x], locality: {headers: {A: b}}}", `proxy.locality.headers is (set): it has no effect without proxy.locality.url`},
		{"locality's address", working + "proxy: {command: [x], locality: {url: 'ftp://x/y'}}", `proxy.locality.url is "ftp://x/y": write http://`},
		{"a zone by a signal", working + "proxy: {command: [x, '{locality}'], locality: {url: 'http://m/z'}, watch: {folders: [a]}, reload: {signal: HUP}}", `proxy.reload.signal is "HUP": a signal carries no zone, and proxy.locality.url may find it only after the start; set proxy.locality.write_file`},
		{"a zone by two ways", working + "proxy: {command: [x, '{locality}'], locality: {value: a, write_file: z, restart: true}}", `proxy.locality has write_file and restart`},
		{"a zone by two reloads", working + "proxy: {command: [x, '{locality}'], locality: {url: 'http://m/z', restart: true}, watch: {folders: [a]}, reload: {hot_restart: true}}", `proxy.locality.restart is true: proxy.reload already passes the zone on`},
		{"a zone from nowhere", working + "proxy: {command: [x], locality: {restart: true}}", `proxy.locality is not set: write_file and restart need a zone`},
		{"locality's tries", working + "proxy: {command: [x], locality: {value: a, tries: 0}}", `proxy.locality.tries is 0: write 1 or more`},
		{"bundle of an unknown provider", working + "secrets: [{name: r, kind: trust-bundle, providers: [x]}]", `secrets.r.provider is "x": configured are file`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := load(test.file, nil)
			wantError(t, err, test.want)
		})
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Fatalf("no error, want %q", want)
	case !strings.Contains(err.Error(), want):
		t.Fatalf("error is\n  %v\nwant\n  %s", err, want)
	}
}

func TestAllErrorsAreReportedAtOnce(t *testing.T) {
	_, _, err := load(working+"ttl: 1ms\nlog: {level: loud}\nrotation: {ratio: 7}", nil)
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 3 {
		t.Errorf("got %d sentences, want 3:\n%v", lines, err)
	}
}

func TestProviderSettingsAreNeverPrinted(t *testing.T) {
	for _, file := range []string{
		"providers: [{name: a, env: {PASSWORD: 12345678}}]",
		"providers: [{name: a, settings: 12345678}]",
		"providers: [{name: a, env: [12345678]}]",
	} {
		_, _, err := load(file, nil)
		wantError(t, err, "is (set) in countersign.yaml")
		if strings.Contains(err.Error(), "12345678") {
			t.Errorf("the value is shown: %v", err)
		}
	}
}

func TestWrongValueNamesItsSource(t *testing.T) {
	_, _, err := load(working, []string{"SECRET_TTL=1ms"})
	wantError(t, err, "ttl is 1ms (from SECRET_TTL): write 1s or more")
	_, _, err = load(working, nil, Assignment{"ttl", "soon", "--ttl"})
	wantError(t, err, `--ttl: ttl is "soon": write a number with a unit`)
}

func TestSetOfUnknownPathIsRefused(t *testing.T) {
	for path, want := range map[string]string{
		"providers.file.sha265": `did you mean "providers.file.sha256"?`,
		"ttl.seconds":           `unknown setting "ttl.seconds": ttl has no settings of its own`,
		"socket":                `socket is "x": write settings below it`,
		"providers":             `providers is "x": write a list`,
		"rotatoin.ratio":        `did you mean "rotation"?`,
	} {
		_, _, err := load(working, nil, Assignment{path, "x", "--set " + path})
		wantError(t, err, want)
	}
	for _, text := range []string{"ttl", "=1"} {
		_, err := ParseAssignment(text)
		wantError(t, err, "write SETTING=VALUE")
	}
}
