package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestWorkloadAPIReplacesProviderAndFiles(t *testing.T) {
	mount(t, "etc/certs/cert-chain.pem", "etc/certs/key.pem", "etc/certs/root-cert.pem")
	c, _ := mustLoad(t, "spire: {socket: unix:///run/spire/agent.sock}", nil)
	want := []SpireSecret{{Name: "default", Kind: KeyPair, rule: "spire.socket is set"}, {Name: "ROOTCA", Kind: TrustBundle, rule: "spire.socket is set"}}
	if c.Spire.Socket != "/run/spire/agent.sock" || !reflect.DeepEqual(c.Spire.Secrets, want) {
		t.Errorf("%+v", c.Spire)
	}
	if len(c.Providers)+len(c.Secrets)+len(c.Files.Secrets) != 0 {
		t.Errorf("providers %v, secrets %v, files %v", c.Providers, c.Secrets, c.Files.Secrets)
	}
	got := sources(t, c)
	if got["default"] != "/run/spire/agent.sock: spire.socket is set" || got["ROOTCA"] != got["default"] {
		t.Errorf("%q", got)
	}
	if c.Choice().Rule != "a SPIFFE Workload API has it" {
		t.Errorf("%+v", c.Choice())
	}
}

func TestRootsOfTheWorkloadAreOfItsTrustDomain(t *testing.T) {
	c, _ := mustLoad(t, `
spire:
  socket: /run/spire/agent.sock
  secrets:
  - {name: default, spiffe_id: spiffe://example.org/web, hint: internal}
  - {name: ROOTCA}
  - {name: partner, kind: trust-bundle, trust_domain: example.com}
outputs: [{name: partner, folder: out, bundle: partner}]
workload_api: {socket: /run/workload.sock, federated: {example.com: partner}}
`, nil)
	if r := c.Spire.Secrets[1]; r.SPIFFEID != "spiffe://example.org/web" || r.Hint != "internal" || r.Kind != TrustBundle {
		t.Errorf("%+v", r)
	}
	if got := explained(t, c, "spire.secrets.ROOTCA.hint"); got.From != "spire.secrets.default" {
		t.Errorf("%+v", got)
	}
}

func TestPartOfTheNamesMayComeFromACA(t *testing.T) {
	c, _ := mustLoad(t, working+"spire: {socket: /s, secrets: [{name: ROOTCA, trust_domain: example.org}]}", nil)
	if len(c.Secrets) != 1 || c.Secrets[0].Name != "default" || !c.FromSpire("ROOTCA") || len(c.Providers) == 0 {
		t.Errorf("secrets %v, providers %v", c.Secrets, c.Providers)
	}
}

func TestWorkloadAPIIsAProviderBesideACA(t *testing.T) {
	c, _ := mustLoad(t, working+`
spire: {socket: /s}
secrets:
- {name: default, spiffe_id: spiffe://example.org/web, providers: [spire, file]}
`, nil)
	both := []string{"spire", "file"}
	if len(c.Spire.Secrets) != 0 || len(c.Secrets) != 2 || !slices.Equal(c.Secrets[0].Providers, both) || !slices.Equal(c.Secrets[1].Providers, both) {
		t.Errorf("spire %+v, secrets %+v", c.Spire, c.Secrets)
	}
	want := []SpireSecret{{Name: "default", Kind: KeyPair, SPIFFEID: "spiffe://example.org/web"}, {Name: "ROOTCA", Kind: TrustBundle}}
	if got := c.SpireProvides(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := sources(t, c)["default"]; got != "spire file: secrets.default.providers names it" {
		t.Error(got)
	}
}

func TestWorkloadAPIAloneNeedsNoProvider(t *testing.T) {
	for _, file := range []string{"provider: spire", "providers: [spire]"} {
		c, _ := mustLoad(t, "spire: {socket: /s}\nsecrets: [{name: default, spiffe_id: spiffe://example.org/web, "+file+"}]", nil)
		if len(c.Providers) != 0 || len(c.Secrets) != 2 || c.Secrets[1].Providers[0] != "spire" {
			t.Errorf("%s: providers %v, secrets %+v", file, c.Providers, c.Secrets)
		}
	}
}

func TestProviderMayBeNamedLikeTheWorkloadAPI(t *testing.T) {
	c, _ := mustLoad(t, strings.Replace(working, "name: file", "name: spire\n    provider: file", 1)+"secrets: [{name: default, dns_names: [b], provider: spire}]", nil)
	if got := c.SpireProvides(); len(c.Providers) != 1 || got != nil {
		t.Errorf("%+v", got)
	}
}

func TestEachSocketIsNamedByPathOrURI(t *testing.T) {
	c, _ := mustLoad(t, working+`
socket: {path: 'unix:///run/a', files_path: 'unix:b'}
workload_api: {socket: 'unix:///run/c'}
gateway: {socket: 'unix:///run/d'}
spire: {socket: 'unix:///run/e'}
status: {address: 'unix:///run/f'}
`, nil)
	got := []string{c.Socket.Path, c.Socket.FilesPath, c.WorkloadAPI.Socket, c.Gateway.Socket, c.Spire.Socket}
	if want := []string{"/run/a", "b", "/run/c", "/run/d", "/run/e"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, where := range []string{"socket: {path: 'unix://a/b'}", "workload_api: {socket: 'http://a'}", "status: {address: 'unix://a/b'}"} {
		_, _, err := load(working+where, nil)
		wantError(t, err, "write the path of a unix socket, or unix:///path")
	}
	_, _, err := load(working+"socket: {path: /run/a}\nspire: {socket: 'unix:///run/a'}", nil)
	wantError(t, err, "the agent itself serves there")
}

func TestWrongWorkloadAPIIsOneSentence(t *testing.T) {
	const on = "spire: {socket: /s, secrets: ["
	for file, want := range map[string]string{
		"spire: {uids: [1]}":                                                               "spire.socket is not set",
		"spire: {socket: 'tcp://127.0.0.1:80'}":                                            "write the path of a unix socket, or unix:///path",
		"spire: {socket: 'unix://relative'}":                                               "write the path of a unix socket",
		"spire: {socket: '" + tooLong + "'}":                                               "a unix socket has at most 107",
		"spire: {socket: /a}\nsocket: {path: /a}":                                          "the agent itself serves there",
		on + "{kind: key-pair}]}":                                                          "spire.secrets.0.name is not set",
		on + "{name: a, kind: pair}]}":                                                     "spire.secrets.a.kind",
		on + "{name: default, kind: trust-bundle}]}":                                       "clients expect a key-pair by the name default",
		on + "{name: a, trust_domain: example.org}]}":                                      "it selects a trust bundle",
		on + "{name: a, kind: trust-bundle, trust_domain: example.org, hint: b}]}":         "either trust_domain, or spiffe_id and hint",
		on + "{name: a, kind: trust-bundle, trust_domain: Example}]}":                      "spire.secrets.a.trust_domain",
		on + "{name: a, spiffe_id: web}]}":                                                 "spire.secrets.a.spiffe_id",
		on + "{name: a}, {name: a}]}":                                                      `spire.secrets has "a" twice`,
		on + "{name: a}]}\nsecrets: [{name: a, dns_names: [b]}]":                           `"a" is both in secrets and in spire.secrets`,
		on + "{name: a}]}\nfiles: {secrets: [{name: a, roots: r}]}":                        `"a" is both in files.secrets and in spire.secrets`,
		"spire: {socket: /s}\nsecrets: [{name: default, dns_names: [b], provider: spire}]": "secrets.default.spiffe_id is not set",
		"secrets: [{name: default, dns_names: [b], providers: [spire]}]":                   "spire.socket is not set",
		"spire: {socket: /s}\nsecrets: [{name: default, spiffe_id: 'spiffe://a/b', provider: spire}]\nproviders: [{name: spire, provider: file}]": "that is the name of the Workload API",
		"workloads: {verified_by: authority}\nspire: {socket: /s}":                                                                                "with workloads, nothing is taken from a Workload API",
	} {
		_, _, err := load(file, nil)
		wantError(t, err, want)
	}
}

var tooLong = "/" + strings.Repeat("x", 107)
