package config

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/ra"
)

// issuers serves cert-manager alone, with two authorities.
const issuers = `
default_provider: vault
providers:
- {name: vault, sha256: ` + pin + `}
- {name: step, sha256: ` + pin + `}
cert_manager:
  authorities:
  - {name: vault, cluster_issuers: true}
  - {name: step, namespaces: [shop, "team-*"]}
rules:
- name: apps
  match: {requests: [cert-manager], namespaces: [shop]}
  names: {requested: ["*.{namespace}.apps.example.org"]}
- name: teams
  match: {requests: [cert-manager]}
  names: {requested: ["*.{namespace}.teams.example.org"]}
  authority: step
`

func TestRuleOfCertManagerIsForItsAuthoritysIssuers(t *testing.T) {
	c, err := Parse("c.yaml", []byte(issuers))
	if err != nil {
		t.Fatal(err)
	}
	shop := ra.Subject{Kind: ra.Namespace, Cluster: "Kubernetes", Namespace: "shop"}
	for door, want := range map[string]string{"cert-manager/vault": "apps", "cert-manager/step": "teams", "cert-manager/other": ""} {
		if d := c.Policy().Try(shop, door); d.Rule != want || (d.Denied == "") != (want != "") {
			t.Errorf("at %s: %+v", door, d)
		}
	}
	if a := c.CertManager.Issuers(); len(a) != 2 || !a[0].ClusterIssuers || a[0].Name != "vault" || len(a[1].Namespaces) != 2 {
		t.Errorf("%+v", a)
	}
	for authority, want := range map[string]string{"vault": "cert-manager/vault", "": "", "other": ""} {
		if got := c.CertManager.Door(authority); got != want {
			t.Errorf("the door of %q is %q", authority, got)
		}
	}
}

// A rule that was written before cert-manager came opens no door to it.
func TestRuleThatDoesNotNameCertManagerIsNotForIt(t *testing.T) {
	const with = working + `
- name: apps
  match: {requests: [cert-manager]}
  names: {requested: ["*.{namespace}.apps.example.org"]}
cert_manager: {authorities: [{name: vault, cluster_issuers: true}]}
`
	c, err := Parse("c.yaml", []byte(strings.Replace(with, "  match: {kinds: [pod]}\n", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	shop := ra.Subject{Kind: ra.Namespace, Cluster: "Kubernetes", Namespace: "shop"}
	if d := c.Policy().Try(shop, "cert-manager/vault"); d.Rule != "apps" {
		t.Errorf("%+v", d)
	}
	if d := c.Policy().Try(pod("Kubernetes"), c.Door("example.com/mesh", PodCertificateRequests)); d.Rule != "pods" {
		t.Errorf("%+v", d)
	}
}

func TestWrongSettingsOfCertManager(t *testing.T) {
	const names = "names: {requested: ['*.{namespace}.apps.example.org']}"
	for text, want := range map[string]string{
		"cert_manager: {enabled: true}":                                                                 `unknown setting "cert_manager.enabled"`,
		"cert_manager: {authorities: [{cluster_issuers: true}]}":                                        `cert_manager.authorities.0.name is not set`,
		"cert_manager: {authorities: [{name: step, cluster_issuers: true}]}":                            `cert_manager.authorities.step is "step": configured providers are vault`,
		"cert_manager: {authorities: [{name: vault}]}":                                                  `cert_manager.authorities.vault is "for nobody": set cluster_issuers, or namespaces`,
		"cert_manager: {authorities: [{name: vault, namespaces: ['*-*']}]}":                             `cert_manager.authorities.vault.namespaces is "*-*": write a namespace, or a pattern`,
		"cert_manager: {authorities: [{name: vault, namespaces: [Shop]}]}":                              `cert_manager.authorities.vault.namespaces is "Shop"`,
		"cert_manager: {authorities: [{name: vault, namespaces: ['']}]}":                                `cert_manager.authorities.vault.namespaces is `,
		"cert_manager: {authorities: [{name: vault, namespaces: [a]}, {name: vault, namespaces: [b]}]}": `duplicate authority`,
		"cert_manager: {authorities: [{name: vault, namespaces: [a]}]}":                                 `rules is "without one for cert-manager/vault"`,
		"rules: [{name: a, " + names + ", match: {requests: [cert-manager]}}]":                          `rules.a.authority is "vault": for the requests of cert-manager, write a name that is in cert_manager.authorities`,
		"rules: [{name: a, names: {requested: ['*']}, match: {requests: [cert-manager]}}]":              `there must be two labels at least behind '*'`,
	} {
		_, err := Parse("c.yaml", []byte(spoiled(text)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}
