package config

import (
	"strings"
	"testing"
)

const publishing = `
certificate: {spiffe_id: 'spiffe://cluster.local/discovery'}
providers: [{name: file}]
dev: true
trust_domains: [{name: cluster.local, own_ca: true}, {name: partner.example, bundle: {url: 'https://partner.example'}}]
`

func TestPublishedTrustDomainIsTheOnlyOwnOne(t *testing.T) {
	c, err := Parse("c.yaml", []byte(publishing+"publish_bundle: {address: ':8443'}\n"))
	if b := c.PublishBundle; err != nil || b.TrustDomain != "cluster.local" || b.Profile != "https_spiffe" {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestWrongPublishedBundleIsRefused(t *testing.T) {
	several := strings.Replace(publishing, "own_ca: true}", "own_ca: true}, {name: other.example, roots_file: /r}", 1)
	named := strings.Replace(publishing, "spiffe_id: 'spiffe://cluster.local/discovery'", "dns_names: [discovery.test]", 1)
	for text, says := range map[string]string{
		publishing + "publish_bundle: {trust_domain: cluster.local}":                                       "publish_bundle.address",
		publishing + "publish_bundle: {address: example.org}":                                              "write host:port",
		publishing + "publish_bundle: {address: ':1', profile: http}":                                      "write https_spiffe or https_web",
		publishing + "publish_bundle: {address: ':1', profile: https_web}":                                 "certificate.dns_names",
		publishing + "publish_bundle: {address: ':1', trust_domain: partner.example}":                      "is published there",
		publishing + "publish_bundle: {address: ':1', trust_domain: stranger.example}":                     "write one of trust_domains",
		publishing + "publish_bundle: {address: ':1', url: 'https://user:word@cluster.org'}":               "has a user in it",
		several + "publish_bundle: {address: ':1'}":                                                        "publish_bundle.trust_domain",
		named + "publish_bundle: {address: ':1'}":                                                          "set certificate.spiffe_id",
		publishing + "cluster: {disabled: true}\nresources: {folder: /r}\npublish_bundle: {address: ':1'}": "kept in a ConfigMap",
	} {
		if _, err := Parse("c.yaml", []byte(text+"\n")); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "word") {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
	for _, text := range []string{
		several + "publish_bundle: {address: ':1', trust_domain: other.example}", named + "publish_bundle: {address: ':1', profile: https_web}",
	} {
		if _, err := Parse("c.yaml", []byte(text+"\n")); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
