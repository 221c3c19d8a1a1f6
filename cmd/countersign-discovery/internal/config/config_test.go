package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/cmd/internal/deploytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pin = "4be1b9cd9a8ce1b2d2c2b2a2f2e2d2c2b2a29282726252423222120111213141"

// working is what every case below spoils: one line of it is another, or there is one more.
const working = `
certificate:
  dns_names: [discovery.istio-system.svc]
providers:
- name: file
  sha256: ` + pin + `
trust_domains:
- name: cluster.local
  own_ca: true
`

func TestMinimalConfigurationHasDefaults(t *testing.T) {
	c, err := Parse("c.yaml", []byte(working))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.TLS != ":15012" || c.Status.Address != "127.0.0.1:15014" || c.Cluster.ID != "Kubernetes" || c.Times.Stream.Duration != time.Hour {
		t.Errorf("%+v", c)
	}
	if len(c.Authenticators) != 2 || c.Authenticators[0].Kind != ByCertificate || c.Authenticators[1].Kind != ByKubernetes {
		t.Errorf("authenticators %+v", c.Authenticators)
	}
	own := c.Signed().Secrets
	if own[0].DNSNames[0] != "discovery.istio-system.svc" || own[0].Providers[0] != "file" || own[1].Providers[0] != "file" {
		t.Errorf("secrets %+v", own)
	}
}

func TestWrongSettingNamesValueAndAllowedOnes(t *testing.T) {
	if err := os.WriteFile(filepath.Join(t.TempDir(), "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"lisen: {}":                                                 `unknown setting "lisen" in c.yaml: did you mean "listen"?`,
		"listen: {tsl: x}":                                          `unknown setting "listen.tsl"`,
		"listen: {tls: '15012'}":                                    `listen.tls is "15012": write host:port`,
		"listen: {tls: 'a:99999'}":                                  `listen.tls is "a:99999": write host:port`,
		"listen: {tls: ''}":                                         `listen.tls is not set: write host:port`,
		"listen: {plaintext: x}":                                    `listen.plaintext is "x": write host:port`,
		"listen: {allow_token_over_plaintext: true}":                `it has no effect without listen.plaintext`,
		"certificate: {}":                                           `certificate.dns_names is not set: set the names that clients dial`,
		"certificate: {dns_names: [' x']}":                          `certificate: `,
		"certificate: {spiffe_id: cluster.local}":                   `certificate: `,
		"certificate: {dns_names: [a], key_type: dsa}":              `certificate.key_type is "dsa": ecdsa-p256, `,
		"certificate: {dns_names: [a], ttl: 0s}":                    `certificate.ttl is "0s": write 1s or more`,
		"certificate: {dns_names: [a], ttl: 5}":                     `certificate.ttl is "5" in c.yaml: write a number with a unit`,
		"certificate: {dns_names: [a], providers: [vault]}":         `certificate.provider is "vault": configured are file`,
		"certificate: {dns_names: [a], providers: [file, file]}":    `certificate.providers is [file file]: write each provider once`,
		"certificate: {chain_file: a}":                              `certificate.chain_file is "a": set both chain_file and key_file`,
		"certificate: {chain_file: a, key_file: b, dns_names: [a]}": `cannot be combined with dns_names, spiffe_id or providers`,
		"certificate: {chain_file: a, key_file: b}":                 `they have no effect with a certificate from files`,
		"providers: []":                                             `providers is not set: name the providers that sign`,
		"providers: [{name: file}]":                                 `providers.file.sha256 is not set`,
		"providers: [{name: file, sha256: " + pin + ", settings: {a: 1}, limits: {memory: 1Ki}}]": `providers.file.limits.memory is 1024`,
		"trust_domains: [{name: A}]":                                                                      `trust_domains.0.name is "A": write a trust domain`,
		"trust_domains: [{name: a}]":                                                                      `trust_domains.a is "0 sources of roots": set one of own_ca, roots_file and bundle`,
		"trust_domains: [{name: a, own_ca: true, roots_file: x}]":                                         `"2 sources of roots"`,
		"trust_domains: [{name: a, own_ca: true}, {name: a, own_ca: true}]":                               `duplicate trust domain`,
		"trust_domains: [{name: a, own_ca: true, clusters: ['']}]":                                        `trust_domains.a.clusters`,
		"trust_domains: [{name: a, bundle: {url: 'http://x'}}]":                                           `trust_domains.a.bundle.url is "http://x": write an https URL`,
		"trust_domains: [{name: a, bundle: {url: 'https://x', server_id: there}}]":                        `trust_domains.a.bundle.server_id is "there": write the SPIFFE ID`,
		"trust_domains: [{name: a, bundle: {url: 'https://x', server_id: 'spiffe://a/b', root_file: r}}]": `trust_domains.a.bundle.root_file is "r"`,
		"trust_domains: []\nauthenticators: [{kind: certificate}]":                                        `authenticators.0.kind is "certificate": it needs trust_domains`,
		"authenticators: []":                                                                                   `authenticators is not set: no caller could be authenticated`,
		"authenticators: [{kind: password}]":                                                                   `authenticators.0.kind is "password": certificate, jwt or kubernetes is allowed`,
		"authenticators: [{kind: kubernetes}, {kind: kubernetes}]":                                             `authenticators.1.kind is "kubernetes": duplicate authenticator`,
		"authenticators: [{kind: kubernetes, issuer: x}]":                                                      `apply only to kind jwt`,
		"authenticators: [{kind: kubernetes, clusters: [east]}]":                                               `apply only to kind jwt`,
		"authenticators: [{kind: jwt, issuer: x, audiences: [a], trust_domain: a, clusters: ['']}]":            `authenticators.0.clusters`,
		"authenticators: [{kind: certificate, service_accounts: x}]":                                           `authenticators.0.service_accounts is "x": it applies only to tokens`,
		"authenticators: [{kind: jwt, audiences: [a], trust_domain: a}]":                                       `authenticators.0.issuer is not set`,
		"authenticators: [{kind: jwt, issuer: x, trust_domain: a}]":                                            `authenticators.0.audiences is not set`,
		"authenticators: [{kind: jwt, issuer: x, audiences: [a]}]":                                             `authenticators.0.trust_domain is not set`,
		"authenticators: [{kind: jwt, issuer: x, audiences: [a], trust_domain: a, jwks_url: u, jwks_file: f}]": `set jwks_url or jwks_file, not both`,
		"authenticators: [{kind: jwt, issuer: x, audiences: [a], service_accounts: 'spiffe://a/{namespace}'}]": `authenticators.0.service_accounts`,
		"audiences: []":                    `audiences is not set`,
		"cluster: {id: ''}":                `cluster.id is not set: write the CLUSTER_ID of its proxies`,
		"cluster: {id: 'a b'}":             `cluster.id is "a b"`,
		"cluster: {system_namespace: A_b}": `cluster.system_namespace is "A_b": write a namespace`,
		"cluster: {disabled: true}":        `resources.folder is not set: cluster.disabled is true`,
		"cluster: {disabled: true, kubeconfig: x}\nresources: {folder: f}":                           `cluster.kubeconfig is "x": it has no effect because cluster.disabled is true`,
		"cluster: {disabled: true}\nresources: {folder: f}\nremotes: {folder: x}":                    `remotes.folder is "x": it has no effect because cluster.disabled is true`,
		"cluster: {disabled: true}\nresources: {folder: f}\nauthenticators: [{kind: kubernetes}]":    `it needs an API server, but cluster.disabled is true`,
		"cluster: {disabled: true}\nresources: {folder: f}\nsecrets: {may_read_config_cluster: [a]}": `secrets is "set": it has no effect because cluster.disabled is true`,
		"remotes: {allow: [everything]}":                                      `unknown kubeconfig field "everything"`,
		"remotes: {servers: ['http://x']}":                                    `remotes: `,
		"remotes: {limits: {bytes: 1023Ki}}":                                  `remotes.limits.bytes is "1047552": write 1Mi or more`,
		"trust_domains: [{name: a, own_ca: true, clusters: ['*']}]":           `trust_domains.a.clusters is "*": write a cluster ID`,
		"secrets: {grants: [{to: {cluster: a/b}, namespace: b}]}":             `secrets.grants.0.to.cluster is "a/b": write a cluster ID`,
		"secrets: {may_read_config_cluster: ['']}":                            `secrets.may_read_config_cluster`,
		"secrets: {grants: [{namespace: A, names: [c]}]}":                     `secrets.grants.0.namespace is "A": write a namespace`,
		"secrets: {grants: [{namespace: a, names: [c]}]} ":                    `secrets.grants.0.to.trust_domain is not set: write the caller's, or "*"`,
		"secrets: {grants: [{to: {namespace: A}, namespace: a, names: [c]}]}": `secrets.grants.0.to.namespace is "A"`,
		"secrets: {grants: [{namespace: b}]}":                                 `secrets.grants.0.names is not set: write the names of secrets`,
		"access: {allow: 9s}":                                                 `access.allow is "9s": write 10s to 1h`,
		"access: {deny: 61m}":                                                 `access.deny is "1h1m0s": write 10s to 1h`,
		"access: {outage: 25h}":                                               `access.outage is "25h0m0s": write 0s to 24h`,
		"limits: {connections_of_address: 0}":                                 `limits.connections_of_address is "0": write 1 or more`,
		"limits: {authentications: 0}":                                        `limits.authentications is "0": write 1 or more`,
		"limits: {authentications_of_address: 0}":                             `limits.authentications_of_address is "0": write 1 or more`,
		"limits: {streams: 0}":                                                `limits.streams is "0": write 1 or more`,
		"times: {stream: 1ms}":                                                `times.stream is "1ms": write 1s or more`,
		"times: {drain: -1s}":                                                 `times.drain is "-1s": write 0s or more`,
		"status: {address: '0.0.0.0:1'}":                                      `status.address is "0.0.0.0:1": write a loopback address`,
		"status: {address: 'unix:'}":                                          `status.address is "unix:": write the path of a unix socket, or unix:///path`,
		"status: {probes: x}":                                                 `status.probes is "x": write host:port`,
		"log: {level: loud}":                                                  `log.level is "loud": debug, info, warn or error is allowed`,
		"log: {format: xml}":                                                  `log.format is "xml": text or json is allowed`,
		"lock: /none":                                                         `lock file /none`,
		"- a":                                                                 `c.yaml holds no settings`,
		"a: b: c":                                                             `c.yaml is not valid YAML`,
	} {
		_, err := Parse("c.yaml", []byte(spoiled(text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// spoiled is working without the settings that text has, and with text.
func spoiled(text string) string { return deploytest.Spoiled(working, text) }

func TestFileCertificateNeedsNoProvider(t *testing.T) {
	c, err := Parse("c.yaml", []byte("certificate: {chain_file: a, key_file: b}\ntrust_domains: [{name: a, roots_file: r}]\n"))
	if err != nil || c.Signed() != nil {
		t.Errorf("%v, %v", c.Signed(), err)
	}
}

func TestExplainHidesCredentials(t *testing.T) {
	c, err := Parse("c.yaml", []byte(strings.Replace(working, "- name: file", "- name: file\n  settings: {password: hunter2}\n  env: {TOKEN: hunter2}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range c.Explain() {
		if text, ok := e.Value.(string); ok {
			found[e.Setting] = text + " " + e.From
		}
		if strings.Contains(found[e.Setting], "hunter2") {
			t.Errorf("%s is shown", e.Setting)
		}
	}
	if found["providers.file.settings.password"] != "(set) c.yaml:6" || found["listen.tls"] != ":15012 default" {
		t.Errorf("%q", found)
	}
}
