package authn_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/authn"
)

func TestSPIFFEIDNamesServiceAccountOnlyByPath(t *testing.T) {
	for text, want := range map[string][2]string{
		"spiffe://example.org/ns/shop/sa/web":       {"shop", "web"},
		"spiffe://example.org/ns/shop/sa/web.v2":    {"shop", "web.v2"},
		"spiffe://example.org/ns/shop/sa/web/more":  {},
		"spiffe://example.org/x/ns/shop/sa/web":     {},
		"spiffe://example.org/ns/shop/sb/web":       {},
		"spiffe://example.org/ns/Shop/sa/web":       {},
		"spiffe://example.org/ns/shop.eu/sa/web":    {},
		"spiffe://example.org/ns/shop/sa/_web":      {},
		"spiffe://example.org/web":                  {},
		"spiffe://example.org/ns/kube-system/sa/-x": {},
	} {
		id, err := authn.OfSPIFFEID(text)
		if err != nil || [2]string{id.Namespace, id.ServiceAccount} != want || id.String() != text {
			t.Errorf("%s: %+v, %v", text, id, err)
		}
	}
	for _, text := range []string{"", "spiffe://example.org", "spiffe://example.org/ns//sa/web", "https://example.org/ns/shop/sa/web"} {
		if id, err := authn.OfSPIFFEID(text); err == nil {
			t.Errorf("%q is taken: %+v", text, id)
		}
	}
}

func TestTemplateGivesEachServiceAccountItsOwnID(t *testing.T) {
	template, err := authn.ParseTemplate("spiffe://cluster.local/ns/{namespace}/sa/{service_account}")
	if err != nil {
		t.Fatal(err)
	}
	id, err := template.Identity("system:serviceaccount:shop:web.v2")
	if want := (authn.Identity{SPIFFEID: "spiffe://cluster.local/ns/shop/sa/web.v2", Namespace: "shop", ServiceAccount: "web.v2"}); err != nil || id != want {
		t.Errorf("%+v, %v", id, err)
	}
	if id, err := (authn.Template{}).Identity("system:serviceaccount:shop:web"); err != nil || id.SPIFFEID != "" || id.String() != "system:serviceaccount:shop:web" {
		t.Errorf("without a template: %+v, %v", id, err)
	}
}

// The names end in a SPIFFE ID: what Kubernetes does not allow could be another's.
func TestNonServiceAccountSubjectIsRefused(t *testing.T) {
	template, _ := authn.ParseTemplate("spiffe://cluster.local/ns/{namespace}/sa/{service_account}")
	for _, user := range []string{
		"", "system:serviceaccount", "system:serviceaccount:shop", "system:serviceaccount:shop:", "system:serviceaccount::web",
		"system:serviceaccount:a/sa/b:c", "system:serviceaccount:shop:web/../api", "system:serviceaccount:shop:web:api",
		"system:serviceaccount:Shop:web", "system:serviceaccount:shop.eu:web", "system:serviceaccount:shop:web.",
		"system:serviceaccount:{service_account}:web", "system:serviceaccount:shop:web\n", " system:serviceaccount:shop:web",
		"System:serviceaccount:shop:web", "system:node:shop", "spiffe://cluster.local/ns/shop/sa/web",
		"system:serviceaccount:" + strings.Repeat("a", 64) + ":web", "system:serviceaccount:shop:" + strings.Repeat("a", 254),
		"system:serviceaccount:shöp:web",
	} {
		if id, err := template.Identity(user); err == nil || id != (authn.Identity{}) {
			t.Errorf("%q is taken: %+v", user, id)
		}
	}
}

func TestAmbiguousTemplateIsRefused(t *testing.T) {
	for _, text := range []string{
		"spiffe://cluster.local/ns/{namespace}",
		"spiffe://cluster.local/{namespace}-{service_account}",
		"spiffe://cluster.local/ns/{namespace}/sa/{namespace}/{service_account}",
		"spiffe://{namespace}/sa/{service_account}",
		"spiffe://cluster.local/ns/x{namespace}/sa/{service_account}",
		"spiffe://Cluster.Local/ns/{namespace}/sa/{service_account}",
		"spiffe://cluster.local/ns/{namespace}/sa/{service_account}/{pod}",
		"https://cluster.local/ns/{namespace}/sa/{service_account}",
		"{namespace}/{service_account}",
	} {
		if _, err := authn.ParseTemplate(text); err == nil || !strings.Contains(err.Error(), "invalid template") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
