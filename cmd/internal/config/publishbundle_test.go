package config

import (
	"strings"
	"testing"
)

func TestPublishedBundleHasDefaults(t *testing.T) {
	c, _ := mustLoad(t, working+"publish_bundle: {address: ':8443'}\n", nil)
	if b := c.PublishBundle; b.Profile != "https_spiffe" || b.Secret != DefaultSecret {
		t.Errorf("%+v", b)
	}
	if c, _ = mustLoad(t, working, nil); c.PublishBundle != (PublishBundle{}) {
		t.Errorf("without an address: %+v", c.PublishBundle)
	}
}

func TestPublishedWITKeysAreWarnedOf(t *testing.T) {
	const both = "publish_bundle: {address: ':8443'}\nworkload_api: {socket: /run/w/s}\nexperimental: [wit-svid, wit-bundle]\n"
	c, _ := mustLoad(t, working+both, nil)
	if !c.PublishesWIT() || !strings.Contains(strings.Join(c.Warnings(), "\n"), "SPIRE 1.15 refuses") {
		t.Errorf("%t, warnings %q", c.PublishesWIT(), c.Warnings())
	}
}

func TestWrongPublishedBundleIsRefused(t *testing.T) {
	const web = "secrets: [{name: web, dns_names: [bundle.example.org]}]\n"
	for text, says := range map[string]string{
		"publish_bundle: {address: ':1'}\nexperimental: [wit-bundle]":                          "publishes the keys of wit-svid",
		"workload_api: {socket: /run/w/s}\nexperimental: [wit-svid, wit-bundle]":               "publishes the keys of wit-svid",
		"publish_bundle: {profile: https_web}":                                                 "publish_bundle.address",
		"publish_bundle: {address: example.org}":                                               "write host:port",
		"publish_bundle: {address: ':1', profile: http}":                                       "write https_spiffe or https_web",
		"publish_bundle: {address: ':1', profile: https_web}":                                  "publish_bundle.secret",
		"publish_bundle: {address: ':1', secret: other}":                                       "no secret of that name",
		"publish_bundle: {address: ':1', secret: ROOTCA}":                                      "publish_bundle.secret",
		web + "publish_bundle: {address: ':1', secret: web}":                                   "the secret has no spiffe_id",
		"publish_bundle: {address: ':1', url: 'http://example.org'}":                           "is not https",
		"publish_bundle: {address: ':1', url: 'https://user:word@example.org'}":                "has a user in it",
		"publish_bundle: {address: ':1', url: 'https://example.org/?trust=a'}":                 "neither query nor fragment",
		"publish_bundle: {address: ':1', url: 'https://e.org/.well-known/wimse-trust-domain'}": "the discovery document",
	} {
		if _, _, err := load(working+text+"\n", nil); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "word") {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
	const rule = filed + "secrets: [{match: '**'}, {name: web, dns_names: [bundle.example.org]}]\npublish_bundle: {address: ':1', profile: https_web, secret: web}\n"
	if _, _, err := load(rule, nil); err == nil || !strings.Contains(err.Error(), "add {name: ROOTCA} to secrets") {
		t.Errorf("without ROOTCA: %v", err)
	}
	if _, _, err := load(strings.Replace(rule, "{match", "{name: ROOTCA}, {match", 1), nil); err != nil {
		t.Error(err)
	}
	if _, _, err := load(working+web+"publish_bundle: {address: ':1', profile: https_web, secret: web}\n", nil); err != nil {
		t.Error(err)
	}
}
