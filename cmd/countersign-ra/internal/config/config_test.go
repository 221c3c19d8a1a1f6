package config

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/cmd/internal/deploytest"
	"github.com/countersign-dev/countersign/ra"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pin = "4be1b9cd9a8ce1b2d2c2b2a2f2e2d2c2b2a29282726252423222120111213141"

// working is what every case below spoils: one section of it is another, or there is one more.
const working = `
providers:
- name: vault
  sha256: ` + pin + `
signers:
- name: example.com/mesh
  pod_certificates: {enabled: true}
  trust_bundle: {name: "example.com:mesh:bundle"}
rules:
- name: pods
  match: {kinds: [pod]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
`

func pod(cluster string) ra.Subject {
	return ra.Subject{Kind: ra.Pod, Cluster: cluster, Namespace: "shop", ServiceAccount: "web", Pod: "web-0", PodUID: "1"}
}

func TestMinimalConfigurationHasDefaults(t *testing.T) {
	c, err := Parse("c.yaml", []byte(working))
	if err != nil {
		t.Fatal(err)
	}
	if c.Cluster.ID != "Kubernetes" || c.Cluster.SystemNamespace != "countersign" || c.Audit.File != "-" || !c.LeaderElection.Enabled {
		t.Errorf("%+v", c)
	}
	if a := c.Authorities; len(a) != 1 || a[0].Name != "vault" || a[0].Limits != (Limits{5, 5, 32}) || a[0].Roots.Wait.Duration != 10*time.Minute {
		t.Errorf("authorities %+v", a)
	}
	if c.Signers[0].TrustBundle.Authority != "vault" || c.Rules[0].Authority != "vault" || c.Rules[0].MaxTTL.Duration != 24*time.Hour {
		t.Errorf("%+v %+v", c.Signers, c.Rules)
	}
	door := c.Door("example.com/mesh", PodCertificateRequests)
	if d := c.Policy().Try(pod("Kubernetes"), door); d.Denied != "" || d.Identity.String() != "spiffe://cluster.local/ns/shop/sa/web" {
		t.Errorf("%+v", d)
	}
	for what, d := range map[string]ra.Decision{
		"another cluster": c.Policy().Try(pod("east"), door), "another door": c.Policy().Try(pod("Kubernetes"), "certificate-requests/example.com/mesh"),
	} {
		if d.Denied == "" {
			t.Errorf("%s is granted %s", what, d.Identity)
		}
	}
}

// A door that comes later must not be opened by a rule that was written before it.
func TestRuleWithoutSignersNamesTodaysDoors(t *testing.T) {
	c, err := Parse("c.yaml", []byte(working))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Policy().Try(pod("Kubernetes"), "istio"); d.Denied == "" {
		t.Error("a door that is none of its signers' is open")
	}
}

func TestWrongSettingNamesValueAndAllowedOnes(t *testing.T) {
	const names = `names: {spiffe_id: "spiffe://a/{pod}"}`
	for text, want := range map[string]string{
		"singers: []":                     `unknown setting "singers" in c.yaml: did you mean "signers"?`,
		"cluster: {id: ''}":               `cluster.id is not set: write the cluster's name`,
		"cluster: {id: 'a b'}":            `cluster.id is "a b"`,
		"cluster: {system_namespace: A}":  `cluster.system_namespace is "A": write a namespace`,
		"remotes: {allow: [everything]}":  `unknown kubeconfig field "everything"`,
		"providers: []":                   `providers is not set: name the providers that sign`,
		"providers: [{name: vault}]":      `providers.vault.sha256 is not set`,
		"providers: [{name: Vault}]":      `providers.0.name is "Vault"`,
		"default_provider: step":          `default_provider is "step": configured are vault`,
		"lock: /none":                     `lock file /none`,
		"audit: {file: ''}":               `audit.file is not set: write the path of a file`,
		"budget: {holder: 0}":             `budget.holder is "0": write 1 or more`,
		"budget: {namespace_every: 0s}":   `budget.namespace_every is "0s": write more than 0s`,
		"leader_election: {duration: 1s}": `leader_election.duration is "1s": write whole seconds, 5s to 5m0s`,
		"status: {address: '0.0.0.0:1'}":  `status.address is "0.0.0.0:1": write a loopback address`,
		"log: {level: loud}":              `log.level is "loud": debug, info, warn or error is allowed`,
		"providers: [{name: vault, sha256: " + pin + ", identity_check: any}]":               `providers.vault.identity_check is "any": only exact is allowed`,
		"providers: [{name: vault, sha256: " + pin + ", root_overlap: 1h}]":                  `providers.vault.root_overlap is "1h0m0s": it has no effect`,
		"providers: [{name: vault, sha256: " + pin + "}, {name: step, sha256: " + pin + "}]": `rules.pods.authority is not set: there are several providers`,

		"authorities: [{name: step}]":                           `authorities.step is "step": configured providers are vault`,
		"authorities: [{roots: {wait: 1s}}]":                    `authorities.0.name is not set`,
		"authorities: [{name: vault}, {name: vault}]":           `duplicate authority`,
		"authorities: [{name: vault, limits: {rate: -1}}]":      `authorities.vault.limits.rate is "-1": write the calls a second`,
		"authorities: [{name: vault, limits: {rate: 1e9}}]":     `authorities.vault.limits.rate is "1e+09"`,
		"authorities: [{name: vault, limits: {rate: NaN}}]":     `authorities.vault.limits.rate is "NaN"`,
		"authorities: [{name: vault, roots: {wait: 1ms}}]":      `authorities.vault.roots.wait is "1ms": write 1s or more`,
		"authorities: [{name: vault, limits: {in_flight: -1}}]": `authorities.vault.limits.in_flight is "-1"`,
		"signers: []": `signers is not set: write the signer names`,
		"signers: [{pod_certificates: {enabled: true}}]":                                              `signers.0.name is not set`,
		"signers: [{name: x, pod_certificates: {enabled: true}}]":                                     `signers.0.name: "x" is not a signer name`,
		"signers: [{name: kubernetes.io/kube-apiserver-client}]":                                      `is reserved for Kubernetes`,
		"signers: [{name: a.kubernetes.io/x}]":                                                        `is reserved for Kubernetes`,
		"signers: [{name: a.b/c}]":                                                                    `signers.a.b/c is "no service": set pod_certificates.enabled`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:d:x'}}]":                                   `signers.a.b/c.trust_bundle.name is "a.b:d:x": write a.b:c: and a suffix`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:'}}]":                                    `signers.a.b/c.trust_bundle.name is "a.b:c:"`,
		"signers: [{name: a.b/c, trust_bundle: {authority: vault}}]":                                  `signers.a.b/c.trust_bundle.authority is "vault": it has no effect without name`,
		"signers: [{name: a.b/c, certificate_requests: {approve: true}}]":                             `certificate_requests.approve is "true": it has no effect without enabled`,
		"signers: [{name: a.b/c, pod_certificates: {enabled: true}, trust_bundle: {labels: {a: b}}}]": "they have no effect without name",
		"signers: [{name: a.b/c, pod_certificates: {enabled: true}, trust_bundle: {bundle_endpoints: [{trust_domain: b.example, url: 'https://b.example'}]}}]":                                                                                                                                          "they have no effect without name",
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', bundle_endpoints: [{trust_domain: b.example, url: 'https://b.example'}]}}]":                                                                                                                                                            `write the trust domain of the pods as k8s.spiffe.io/workload-trust-domain`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', labels: {k8s.spiffe.io/workload-trust-domain: a.example, k8s.spiffe.io/peer-trust-domain: a.example}, bundle_endpoints: [{trust_domain: b.example, url: 'https://b.example'}, {trust_domain: b.example, url: 'https://b.example'}]}}]": `bundle_endpoints.1.trust_domain is "b.example": it is there twice`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', labels: {k8s.spiffe.io/workload-trust-domain: a.example, k8s.spiffe.io/peer-trust-domain: a.example}, bundle_endpoints: [{trust_domain: a.example, url: 'https://a.example'}]}}]":                                                      `or that of the pods`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', labels: {k8s.spiffe.io/workload-trust-domain: a.example, k8s.spiffe.io/peer-trust-domain: a.example}, bundle_endpoints: [{trust_domain: b_c.example, url: 'https://b.example'}]}}]":                                                    `cannot be named after it`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', labels: {k8s.spiffe.io/workload-trust-domain: a.example, k8s.spiffe.io/peer-trust-domain: a.example}, bundle_endpoints: [{trust_domain: b.example, url: 'http://b.example'}]}}]":                                                       `is not https`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', labels: {'a b': c}}}]":                             "signers.a.b/c.trust_bundle.labels.a b",
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', labels: {a: 'b c'}}}]":                             "signers.a.b/c.trust_bundle.labels.a",
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', labels: {app.kubernetes.io/managed-by: c}}}]":      "the object has that label by itself",
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x', authority: step}}]":                                `signers.a.b/c.trust_bundle.authority is "step": configured providers are vault`,
		"signers: [{name: a.b/c, pod_certificates: {enabled: true}}, {name: a.b/c}]":                                `duplicate signer`,
		"signers: [{name: a.b/c, trust_bundle: {name: 'a.b:c:x'}}, {name: a.b/c, trust_bundle: {name: 'a.b:c:x'}}]": `another signer has the same`,

		"rules: []":                                                                    `rules is not set: write who may have which certificate`,
		"rules: [{" + names + "}]":                                                     `rules.0: it needs a name`,
		"rules: [{name: a}]":                                                           `rules.a: it grants no name`,
		"rules: [{name: \"a\\n\", " + names + "}]":                                     `rules.a\n: it needs a name that prints`,
		"rules: [{name: a, " + names + ", authority: step}]":                           `rules.a.authority is "step": configured providers are vault`,
		"rules: [{name: a, " + names + ", usages: all}]":                               `rules.a.usages is "all": any, server, client or both is allowed`,
		"rules: [{name: a, " + names + ", key_types: [dsa]}]":                          `rules.a: the key type "dsa" is not known`,
		"rules: [{name: a, " + names + ", max_ttl: 30m}]":                              `rules.a.max_ttl is "30m0s": pod-certificates/example.com/mesh takes no less than 1h0m0s`,
		"rules: [{name: a, " + names + ", max_ttl: 2h}]\nbudget: {holder_every: 90m}":  `budget.holder_every is "1h30m0s": certificates of the rule a live for 2h0m0s and are renewed at half of that; write 1h0m0s or less`,
		"rules: [{name: a, " + names + ", max_ttl: -1h}]":                              `rules.a: its longest lifetime is -1h0m0s`,
		"rules: [{name: a, " + names + ", match: {signers: [x.y/z]}}]":                 `rules.a.match.signers is "x.y/z": write a name that is in signers`,
		"rules: [{name: a, " + names + ", match: {requests: [certificate-requests]}}]": `rules.a.match is "without an effect"`,
		"rules: [{name: a, " + names + ", match: {requests: [pods]}}]":                 `rules.a.match.requests is "pods": pod-certificates, certificate-requests, istio or cert-manager is allowed`,
		"rules: [{name: a, " + names + ", match: {kinds: [deployment]}}]":              `rules.a: the kind "deployment" is not known`,
		"rules: [{name: a, " + names + ", match: {namespaces: ['*-*']}}]":              `rules.a: the namespace "*-*" is an invalid pattern`,
		"rules: [{name: a, " + names + "}, {name: a, " + names + "}]":                  `another rule has the same name`,
		"rules: [{name: a, names: {spiffe_id: 'spiffe://{namespace}/x'}}]":             `rules.a: the template "spiffe://{namespace}/x" takes its trust domain from an attribute`,
		"rules: [{name: a, names: {dns_names: ['{serviceAccount}-{namespace}.svc']}}]": `is neither a text nor one {attribute}`,
		"rules: [{name: a, names: {dns_names: ['{podIP}.svc']}}]":                      `{podIP} is not a verified attribute`,
		"rules: [{name: a, names: {dns_names: ['svc.{pod}']}}]":                        `write the last label out`,
		"rules: [{name: a, names: {requested: ['{podIP}.example.org']}}]":              `{podIP} is not a verified attribute`,
		"rules: [{name: a, names: {ip_addresses: ['{podIP}']}}]":                       `rules.a: the IP address "{podIP}" is not valid`,
		"signers: [{name: a.b/c, pod_certificates: {enabled: true}}, {name: d.e/f, pod_certificates: {enabled: true}}]\nrules: [{name: a, " + names + ", match: {signers: [a.b/c]}}]": `rules is "without one for pod-certificates/d.e/f"`,
		"- a":     `c.yaml holds no settings`,
		"a: b: c": `c.yaml is not valid YAML`,
	} {
		_, err := Parse("c.yaml", []byte(spoiled(text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// spoiled is working without the settings that text has, and with text.
func spoiled(text string) string { return deploytest.Spoiled(working, text) }

func TestHostileTextIsEscapedInErrors(t *testing.T) {
	const red = "\x1b[31m"
	for _, text := range []string{
		`rules: [{name: "a` + `\e[31m` + `", names: {spiffe_id: "x` + `\e[31m` + `"}, usages: "` + `\e[31m` + `"}]`,
		`signers: [{name: "` + `\e[31m` + strings.Repeat("x", 2000) + `"}]`,
		`authorities: [{name: "` + `\e[31m` + strings.Repeat("x", 2000) + `"}]`,
	} {
		_, err := Parse("c.yaml", []byte(spoiled(text)))
		if err == nil || strings.Contains(err.Error(), red) {
			t.Errorf("%s: %q", text, err)
		}
		for line := range strings.Lines(err.Error()) {
			if len(line) > 1500 {
				t.Errorf("a line of %d bytes", len(line))
			}
		}
	}
}

func TestExplainHidesCredentials(t *testing.T) {
	c, err := Parse("c.yaml", []byte(strings.Replace(working, "- name: vault", "- name: vault\n  settings: {password: hunter2}\n  env: {TOKEN: hunter2}", 1)))
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
	if found["providers.vault.settings.password"] != "(set) c.yaml:4" || found["rules.pods.usages"] != "any default" || found["authorities.vault.roots.wait"] != "10m0s default" {
		t.Errorf("%q", found)
	}
}
