package config

import (
	"strings"
	"testing"
)

func TestPublishedBundleHasDefaults(t *testing.T) {
	c, err := Parse("c.yaml", []byte(mesh+"publish_bundle: {address: ':8443', profile: https_web, trust_domain: cluster.local}\n"))
	if b := c.PublishBundle; err != nil || b.Authority != "vault" || b.InFiles() {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestWrongPublishedBundleIsRefused(t *testing.T) {
	pods := strings.Replace(strings.Replace(mesh, "istio:\n  listen: \":15012\"\n  certificate: {dns_names: [countersign-ra.countersign.svc]}", "signers: [{name: example.com/mesh, pod_certificates: {enabled: true}}]", 1), "requests: [istio]", "kinds: [pod]", 1)
	const rest = ", trust_domain: cluster.local}"
	for text, says := range map[string]string{
		mesh + "publish_bundle: {trust_domain: cluster.local}":                                                   "publish_bundle.address",
		mesh + "publish_bundle: {address: example.org, profile: https_web" + rest:                                "write host:port",
		mesh + "publish_bundle: {address: ':1', profile: http" + rest:                                            "write https_spiffe or https_web",
		mesh + "publish_bundle: {address: ':1'" + rest:                                                           "no X.509-SVID of its own",
		mesh + "publish_bundle: {address: ':1', profile: https_web}":                                             "publish_bundle.trust_domain",
		mesh + "publish_bundle: {address: ':1', profile: https_web, authority: other" + rest:                     "configured providers are vault",
		mesh + "publish_bundle: {address: ':1', chain_file: /c" + rest:                                           "set both chain_file and key_file",
		mesh + "publish_bundle: {address: ':1', profile: https_web, url: 'https://user:word@example.org'" + rest: "has a user in it",
		pods + "publish_bundle: {address: ':1', profile: https_web" + rest:                                       "without istio.listen",
	} {
		if _, err := Parse("c.yaml", []byte(text+"\n")); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "word") {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
	if _, err := Parse("c.yaml", []byte(pods+"publish_bundle: {address: ':1', chain_file: /c, key_file: /k"+rest+"\n")); err != nil {
		t.Error(err)
	}
}
