package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestBundleEndpointIsFederated(t *testing.T) {
	c, _ := mustLoad(t, working+`
bundle_endpoints:
- {trust_domain: partner.example, url: "https://spire.partner.example:8443", server_id: "spiffe://partner.example/spire/server", initial_file: partner.pem}
- {trust_domain: web.example, url: "https://web.example/bundle", name: web-roots}
secrets: [{name: other, kind: trust-bundle, providers: [file]}]
workload_api: {federated: {other.example: other}}
outputs: [{name: web, folder: ./out, secret: default, bundle: web-roots}]
crl: [{name: partner.example, files: [partner.crl]}]
`, nil)
	want := map[string]string{"partner.example": "partner.example", "web.example": "web-roots", "other.example": "other"}
	if !reflect.DeepEqual(c.WorkloadAPI.Federated, want) {
		t.Errorf("federated are %v", c.WorkloadAPI.Federated)
	}
	if got := c.kindOf("web-roots"); got != TrustBundle {
		t.Errorf("its kind is %q", got)
	}
	if got := NeedRestart([]string{"bundle_endpoints.web-roots.url"}); len(got) != 1 {
		t.Error("a running agent would not take it over")
	}
}

func TestWrongBundleEndpointIsRefused(t *testing.T) {
	const good = `trust_domain: partner.example, url: "https://partner.example"`
	for text, says := range map[string]string{
		`bundle_endpoints: [{url: "https://x"}]`:                                                                                   "bundle_endpoints.0.trust_domain",
		`bundle_endpoints: [{trust_domain: partner.example}]`:                                                                      "bundle_endpoints.partner.example.url",
		`bundle_endpoints: [{trust_domain: partner.example, url: "http://partner.example"}]`:                                       "is not https",
		`bundle_endpoints: [{` + good + `}, {` + good + `, name: two}]`:                                                            "twice",
		`bundle_endpoints: [{` + good + `, name: ROOTCA}]`:                                                                         "another secret has that name",
		`bundle_endpoints: [{` + good + `, name: x}, {trust_domain: b.example, url: "https://b.example", name: x}]`:                "another entry has that name",
		"bundle_endpoints: [{" + good + "}]\nworkload_api: {federated: {partner.example: ROOTCA}}":                                 "remove one of the two",
		"bundle_endpoints: [{" + good + "}]\nworkload_api: {socket: ./s, identities: [{name: partner.example, bundle: ROOTCA}]}\n": "no secret of that name",
	} {
		if _, _, err := load(working+text+"\n", nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
}
