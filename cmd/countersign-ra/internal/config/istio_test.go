package config

import (
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/cmd/internal/deploytest"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// mesh is a configuration for a mesh alone.
const mesh = `
providers:
- name: vault
  sha256: ` + pin + `
istio:
  listen: ":15012"
  certificate: {dns_names: [countersign-ra.countersign.svc]}
rules:
- name: mesh
  match: {requests: [istio]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
`

func account(cluster string) ra.Subject {
	return ra.Subject{Kind: ra.ServiceAccount, Cluster: cluster, Namespace: "shop", ServiceAccount: "web"}
}

func TestMeshNeedsNoSigners(t *testing.T) {
	c, err := Parse("c.yaml", []byte(mesh))
	if err != nil {
		t.Fatal(err)
	}
	i := c.Istio
	if len(i.Audiences) != 1 || i.Audiences[0] != "istio-ca" || i.CSRNames != CSRNamesIgnored || i.Certificate.Authority != "vault" || i.Certificate.TTL.Duration != 24*time.Hour {
		t.Errorf("%+v", i)
	}
	if d := c.Policy().Try(account("Kubernetes"), "istio"); d.Denied != "" || d.Identity.String() != "spiffe://cluster.local/ns/shop/sa/web" {
		t.Errorf("%+v", d)
	}
	if d := c.Policy().Try(account("east"), "istio"); d.Denied == "" {
		t.Error("another cluster is granted " + d.Identity.String())
	}
}

// A rule that was written for pods must not begin to serve a mesh when istio is set.
func TestOnlyRulesThatSaySoServeAMesh(t *testing.T) {
	text := strings.ReplaceAll(mesh, "rules:", `signers: [{name: example.com/mesh, pod_certificates: {enabled: true}}]
rules:
- name: pods
  names: {spiffe_id: "spiffe://cluster.local/pod"}`)
	c, err := Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Policy().Try(account("Kubernetes"), "istio"); d.Rule != "mesh" {
		t.Errorf("%+v", d)
	}
	if d := c.Policy().Try(pod("Kubernetes"), c.Door("example.com/mesh", PodCertificateRequests)); d.Rule != "pods" {
		t.Errorf("%+v", d)
	}
}

func TestCertSignersAreThoseOfRules(t *testing.T) {
	text := mesh + `- name: fast
  match: {requests: [istio], cert_signers: [fast]}
  names: {spiffe_id: "spiffe://cluster.local/fast"}
`
	c, err := Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	door, ok := c.IstioDoor("fast")
	if d := c.Policy().Try(account("Kubernetes"), door); !ok || d.Rule != "fast" {
		t.Errorf("%t %+v", ok, d)
	}
	if d := c.Policy().Try(account("Kubernetes"), "istio"); d.Rule != "mesh" {
		t.Errorf("%+v", d)
	}
	if _, ok := c.IstioDoor("slow"); ok {
		t.Error("a CertSigner that no rule names is served")
	}
}

func TestNodeProxiesAreOfTheHomeClusterUnlessTheySay(t *testing.T) {
	c, err := Parse("c.yaml", []byte(strings.ReplaceAll(mesh, "  listen:", "  node_proxies: [istio-system/ztunnel, east/istio-system/ztunnel]\n  listen:")))
	if err != nil {
		t.Fatal(err)
	}
	want := []istioca.Account{{Cluster: "Kubernetes", Namespace: "istio-system", ServiceAccount: "ztunnel"}, {Cluster: "east", Namespace: "istio-system", ServiceAccount: "ztunnel"}}
	if got := c.Proxies(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v", got)
	}
}

func TestWrongSettingOfAMeshIsNamed(t *testing.T) {
	const (
		listen = "istio: {listen: ':1', certificate: {dns_names: [a.svc]}"
		names  = `names: {spiffe_id: "spiffe://a/{namespace}"}`
	)
	for text, want := range map[string]string{
		"istio: {audiences: [a]}":                                                                         `istio.listen is not set: write host:port, such as :15012, or remove istio`,
		"istio: {listen: nowhere, certificate: {dns_names: [a.svc]}}":                                     `istio.listen is "nowhere": write host:port`,
		"istio: {listen: ':1'}":                                                                           `istio.certificate.dns_names is not set: write the host of the mesh's caAddress`,
		"istio: {listen: ':1', certificate: {dns_names: ['a b']}}":                                        `istio.certificate.dns_names: `,
		"istio: {listen: ':1', certificate: {chain_file: /a}}":                                            `istio.certificate.chain_file is "/a": set both chain_file and key_file`,
		"istio: {listen: ':1', certificate: {key_file: /a}}":                                              `istio.certificate.chain_file is not set: set both`,
		"istio: {listen: ':1', certificate: {chain_file: /a, key_file: /b, dns_names: [a.svc]}}":          `a certificate from files cannot be combined with dns_names`,
		"istio: {listen: ':1', certificate: {dns_names: [a.svc], key_type: dsa}}":                         `istio.certificate.key_type is "dsa": ecdsa-p256, `,
		"istio: {listen: ':1', certificate: {dns_names: [a.svc], ttl: 1ms}}":                              `istio.certificate.ttl is "1ms": write 1s or more`,
		"istio: {listen: ':1', certificate: {dns_names: [a.svc], authority: step}}":                       `istio.certificate.authority is "step": configured providers are vault`,
		listen + ", audiences: ['']}":                                                                     `istio.audiences is not set: write the accepted audiences`,
		listen + ", clusters: ['a b']}":                                                                   `istio.clusters.0 is "a b": write a cluster ID`,
		listen + ", csr_names: trusted}":                                                                  `istio.csr_names is "trusted": ignored or held is allowed`,
		listen + ", node_proxies: [ztunnel]}":                                                             `istio.node_proxies.0 is "ztunnel": write NAMESPACE/NAME`,
		listen + ", node_proxies: [a/b/c/d]}":                                                             `istio.node_proxies.0 is "a/b/c/d"`,
		listen + ", node_proxies: ['A b/c']}":                                                             `istio.node_proxies.0 is "A b/c"`,
		listen + ", node_proxies: ['istio-system/']}":                                                     `istio.node_proxies.0 is "istio-system/"`,
		listen + ", issuers: [{cluster: vm}]}":                                                            `istio.issuers.0.issuer is not set: write the iss claim`,
		listen + ", issuers: [{issuer: 'https://a'}]}":                                                    `istio.issuers.0.cluster is not set: write the cluster of its callers`,
		listen + ", issuers: [{issuer: 'https://a', cluster: vm, jwks_url: 'https://b', jwks_file: /c}]}": `set jwks_url or jwks_file, not both`,
		listen + ", issuers: [{issuer: 'https://a', cluster: vm, trust_domain: A}]}":                      `istio.issuers.0.trust_domain is "A"`,
		listen + ", issuers: [{issuer: 'https://a', cluster: vm}, {issuer: 'https://a', cluster: b}]}":    `istio.issuers.1.issuer is "https://a": duplicate issuer`,
		listen + ", limits: {connections_of_address: 0}}":                                                 `istio.limits.connections_of_address is "0": write 1 or more`,
		listen + ", limits: {authentications: 0}}":                                                        `istio.limits.authentications is "0": write 1 or more`,
		listen + ", limits: {authentications_of_address: 0}}":                                             `istio.limits.authentications_of_address is "0": write 1 or more`,
		listen + ", limits: {calls_of_identity: 0}}":                                                      `istio.limits.calls_of_identity is "0": write 1 or more`,
		listen + ", hold: 999ms}":                                                                         `istio.hold is "999ms": write 1s to 1m`,
		listen + ", hold: 61s}":                                                                           `istio.hold is "1m1s": write 1s to 1m`,
		"istio: {limits: {calls_of_identity: 5}}":                                                         `istio.listen is not set: write host:port`,
		listen + ", tokens: many}":                                                                        `unknown setting "istio.tokens"`,

		"signers: [{name: a.b/c, pod_certificates: {enabled: true}}]\nrules: [{name: a, " + names + "}]": `rules is "without one for istio"`,
		"rules: [{name: a, " + names + "}]":                                                 `rules.a.match is "without an effect"`,
		"rules: [{name: a, " + names + ", match: {requests: [istio], signers: [a.b/c]}}]":   `rules.a.match.signers is "[a.b/c]": requests of a mesh have none`,
		"rules: [{name: a, " + names + ", match: {cert_signers: [fast]}}]":                  `rules.a.match.cert_signers is "[fast]": it has no effect without istio in match.requests`,
		"rules: [{name: a, " + names + ", match: {requests: [istio], cert_signers: ['']}}]": `rules.a.match.cert_signers is not set: write values of CertSigner`,
	} {
		_, err := Parse("c.yaml", []byte(deploytest.Spoiled(mesh, text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
	_, err := Parse("c.yaml", []byte(spoiled("rules: [{name: a, "+names+", match: {requests: [istio]}}]")))
	if err == nil || !strings.Contains(err.Error(), `rules.a.match.requests is "istio": it has no effect without istio.listen`) {
		t.Error(err)
	}
}

// The first block is a whole file, others are added to it. The kustomization is built in
// kubernetes.
func TestExamplesOfAMeshInDocsAreValid(t *testing.T) {
	page, err := os.ReadFile(programs.File(t, "docs/istio.md"))
	if err != nil {
		t.Fatal(err)
	}
	former := filepath.Join(t.TempDir(), "former-root.pem")
	if err := os.WriteFile(former, pki.EncodeCertificates([]*x509.Certificate{certtest.Root(t).Cert}), 0o600); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("lock: /usr/lib/countersign/countersign.lock", "dev: true", "/etc/countersign/former-root.pem", former) // the image and the pod have the files
	file, added := map[string]any{}, 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := here.Replace(block[1])
		switch first, _, _ := strings.Cut(text, "\n"); first {
		case "# ra.yaml":
			c := validExample(t, text)
			if !c.Istio.Enabled() || len(c.Proxies()) != 1 {
				t.Errorf("%+v", c.Istio)
			}
			if err := yaml.Unmarshal([]byte(text), &file); err != nil {
				t.Fatal(err)
			}
		case "mesh:", "istio:", "rules:":
			validExample(t, with(t, file, text))
			added++
		case "# kustomization.yaml", "# for istiod (Helm chart istiod)", "# for ztunnel (Helm chart ztunnel)":
		default:
			t.Errorf("nobody tries the block that begins with %q", first)
		}
	}
	if added != 4 {
		t.Errorf("%d blocks are added to the first", added)
	}
}

func validExample(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse("ra.yaml", []byte(text))
	if err != nil {
		t.Errorf("%v: %s", err, text)
	}
	if err := deploytest.Valid(Schema, text); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return c
}

// with is a file with the settings of a block added to its sections, and in place of its lists.
func with(t *testing.T, file map[string]any, block string) string {
	t.Helper()
	added, all := map[string]any{}, maps.Clone(file)
	if err := yaml.Unmarshal([]byte(block), &added); err != nil {
		t.Fatal(err)
	}
	for name, section := range added {
		before, _ := all[name].(map[string]any)
		if section, ok := section.(map[string]any); ok {
			maps.Copy(section, before)
		}
		all[name] = section
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A replica does not know which certificates another has given to a mesh.
func TestNewRootOfAMeshWaitsForCertificatesOfOtherReplicas(t *testing.T) {
	limited := strings.Replace(mesh, "- name: mesh\n", "- name: mesh\n  max_ttl: 2h\n", 1)
	for text, want := range map[string]time.Duration{
		mesh: 10 * time.Minute,
		mesh + "authorities: [{name: vault, roots: {by_reply: true}}]":                            24*time.Hour + 5*time.Minute,
		limited + "authorities: [{name: vault, roots: {by_reply: true}}]":                         2*time.Hour + 5*time.Minute,
		limited + "authorities: [{name: vault, roots: {by_reply: true, wait: 3h, interval: 1s}}]": 3 * time.Hour,
		limited + "mesh: {roots: {enabled: true}}":                                                2*time.Hour + 5*time.Minute,
	} {
		c, err := Parse("c.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RootsWait(c.Authorities[0]); got != want {
			t.Errorf("%s: waits for %s, want %s", text, got, want)
		}
	}
}

// A longer lifetime counts for roots that are being published at once.
func TestReloadTakesOverRulesAndCallersAlone(t *testing.T) {
	parse := func(text string) *Config {
		c, err := Parse("c.yaml", []byte(text+"authorities: [{name: vault, roots: {by_reply: true}}]"))
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}
	was := parse(strings.Replace(mesh, "- name: mesh\n", "- name: mesh\n  max_ttl: 2h\n", 1))
	next := parse(strings.Replace(mesh, "  listen:", "  node_proxies: [a/b]\n  listen:", 1))
	next.Istio.Listen, next.Istio.Certificate.DNSNames = ":1", []string{"other.countersign.svc"}
	got := was.With(next)
	if wait := got.RootsWait(got.Authorities[0]); wait != 24*time.Hour+5*time.Minute {
		t.Errorf("a new root waits for %s", wait)
	}
	if got.Istio.Listen != was.Istio.Listen || len(got.Proxies()) != 1 || got.Policy().Try(account(got.Cluster.ID), "istio").MaxTTL != 24*time.Hour {
		t.Errorf("got %+v", got.Istio)
	}
	next.Istio.Limits.CallsOfIdentity, next.Istio.Hold.Duration = 5, time.Minute
	if got := was.With(next); got.Istio.Limits != was.Istio.Limits || got.Istio.Hold != was.Istio.Hold {
		t.Errorf("got %+v", got.Istio)
	}
	next.Istio = Istio{}
	next.given = nil
	got = was.With(next)
	if !got.Istio.Enabled() || got.Policy().Try(account(got.Cluster.ID), "istio").Denied == "" {
		t.Error("the door for a mesh is gone, or its rules are not")
	}
	if own := got.Policy().Try(got.Itself(), IstioItself); len(own.Identity.DNSNames) != 1 || own.Identity.DNSNames[0] != "countersign-ra.countersign.svc" {
		t.Errorf("its own certificate, which only a restart changes, gets %+v", own)
	}
}

func TestTheDoorForAMeshHasARuleForItsOwnCertificateAlone(t *testing.T) {
	c, err := Parse("c.yaml", []byte(mesh))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Policy().Try(c.Itself(), IstioItself)
	if d.Denied != "" || d.Authority != "vault" || d.MaxTTL != 24*time.Hour || d.Identity.SPIFFEID != nil || strings.Join(d.Identity.DNSNames, " ") != "countersign-ra.countersign.svc" {
		t.Errorf("got %+v", d)
	}
	for name, d := range map[string]ra.Decision{
		"an account at its door":         c.Policy().Try(account(c.Cluster.ID), IstioItself),
		"the same account of another":    c.Policy().Try(ra.Subject{Kind: ra.ServiceAccount, Cluster: "east", Namespace: "countersign", ServiceAccount: "countersign-ra"}, IstioItself),
		"a pod of the very same account": c.Policy().Try(ra.Subject{Kind: ra.Pod, Cluster: c.Cluster.ID, Namespace: "countersign", ServiceAccount: "countersign-ra", Pod: "a"}, IstioItself),
	} {
		if d.Denied == "" {
			t.Errorf("%s gets %+v", name, d)
		}
	}
	files, err := Parse("c.yaml", []byte(strings.Replace(mesh, "{dns_names: [countersign-ra.countersign.svc]}", "{chain_file: a, key_file: b}", 1)))
	if err != nil || files.Policy().Try(files.Itself(), IstioItself).Denied == "" || len(files.Doors()) != len(c.Doors())-1 {
		t.Errorf("%v: a certificate in files has a rule: %v", err, files.Doors())
	}
	for text, want := range map[string]string{
		strings.Replace(mesh, "- name: mesh", "- name: istio-certificate", 1): `rules.istio-certificate is "istio-certificate": the rule for the certificate of istio has this name`,
		strings.Replace(mesh, "svc]}", "svc], ttl: 8m}", 1):                   `budget.holder_every is "5m0s": certificates of the rule istio-certificate live for 8m0s`,
	} {
		if _, err := Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestRenewalsHaveABound(t *testing.T) {
	with := func(renewals string) string {
		return strings.Replace(mesh, "rules:", "  renewals: "+renewals+"\nrules:", 1)
	}
	c, err := Parse("c.yaml", []byte(with("{identities: [spiffe://cluster.local/ns/vm/sa/db, 'spiffe://vm.example.org/host/*']}")))
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Istio.Renewals.Longest.Duration; l != 720*time.Hour {
		t.Errorf("the default is %s", l)
	}
	if got := c.RenewedAuthorities(); len(got) != 1 || got[0] != "vault" {
		t.Errorf("%q", got)
	}
	for renewals, want := range map[string]string{
		"{longest: 1h}": `istio.renewals.longest is "1h0m0s": it has no effect without identities`,
		"{identities: [spiffe://a/b], longest: 1s}":    `istio.renewals.longest is "1s": write 1m to 8784h`,
		"{identities: [spiffe://a/b], longest: 9000h}": `istio.renewals.longest is "9000h0m0s": write 1m to 8784h`,
		"{identities: [spiffe://a/b, db]}":             `istio.renewals.identities.1 is "db": write a SPIFFE ID`,
		"{identities: ['*']}":                          `istio.renewals.identities.0 is "*"`,
		"{identities: ['spiffe://a*']}":                `istio.renewals.identities.0 is "spiffe://a*"`,
	} {
		if _, err := Parse("c.yaml", []byte(with(renewals))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", renewals, err)
		}
	}
}

// What a file leaves out has the door's own default.
func TestLimitsOfAMeshAreThoseOfTheDoorByDefault(t *testing.T) {
	c, err := Parse("c.yaml", []byte(strings.Replace(mesh, "  listen:", "  limits: {connections_of_address: 30000, authentications_of_address: 1000}\n  listen:", 1)))
	if err != nil {
		t.Fatal(err)
	}
	limits, times := c.Istio.Bounds()
	want := istioca.Limits{
		ConnectionsOfAddress: 30_000, Authentications: 1000, AuthenticationsOfAddress: 1000,
		CallsOfCaller: 64,
	}
	if limits != want || times != (istioca.Times{Hold: 10 * time.Second}) {
		t.Errorf("got %+v, %+v", limits, times)
	}
}

func TestUnsetVariableStopsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ra.yaml")
	text := strings.Replace(mesh, "  sha256:", "  token: {env: VAULT_TOKEN}\n  sha256:", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Read([]string{}, file)
	if want := `providers.vault.token.env is "VAULT_TOKEN": this variable is not set in the program's environment`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Read([]string{"VAULT_TOKEN=x"}, file); err != nil {
		t.Error(err)
	}
}
