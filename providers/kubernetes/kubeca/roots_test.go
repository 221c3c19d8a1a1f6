package kubeca

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func (c *cluster) serves(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	c.set(func() { c.plain[path] = string(text) })
}

func TestRootsComeFromWhereTheSettingsSay(t *testing.T) {
	c := newCluster(t)
	roots := string(c.Bundle().PEM())
	const configMap, bundle = "/api/v1/namespaces/shop/configmaps/roots", "/clustertrustbundles/example.org:mesh:1"
	type data map[string]any
	spec := data{"spec": data{"trustBundle": roots}}
	for name, one := range map[string]struct {
		settings func(*Settings)
		path     string
		value    any
	}{
		"file":       {func(*Settings) {}, "/x", 1},
		"ConfigMap":  {func(s *Settings) { s.ConfigMap = &ConfigMap{Namespace: "shop", Name: "roots"} }, configMap, data{"data": data{"ca.crt": roots}}},
		"its key":    {func(s *Settings) { s.ConfigMap = &ConfigMap{"shop", "roots", "mesh.pem"} }, configMap, data{"data": data{"mesh.pem": "# ours\n" + roots}}},
		"bundle":     {func(s *Settings) { s.ClusterTrustBundle = "example.org:mesh:1" }, "/apis/certificates.k8s.io/v1" + bundle, spec},
		"old bundle": {func(s *Settings) { s.ClusterTrustBundle = "example.org:mesh:1" }, "/apis/certificates.k8s.io/v1beta1" + bundle, spec},
	} {
		settings := c.direct()
		if name != "file" {
			settings.BundleFile = ""
		}
		one.settings(&settings)
		c.set(func() { c.plain = map[string]string{} })
		with := open(t, settings)
		if name != "file" {
			_, err := with.Roots(t.Context())
			testkit.Fails(t, err, ourToken, ca.ErrUnavailable, "with 404")
		}
		c.serves(t, one.path, one.value)
		got, err := with.Roots(t.Context())
		must(t, err)
		if found, err := pki.ParseBundle(got); err != nil || !found.Equal(c.Bundle()) {
			t.Errorf("%s: %v", name, err)
		}
		sign(t, c, with)
	}
}

func TestPlaceWithoutRootsIsAnError(t *testing.T) {
	c := newCluster(t)
	settings := c.direct()
	settings.BundleFile, settings.ConfigMap = "", &ConfigMap{Namespace: "shop", Name: "roots"}
	with := open(t, settings)
	for says, data := range map[string]map[string]string{
		"has no key ca.crt": {"x": "y"}, "certificate": {"ca.crt": "sesame"}, "is a root": {"ca.crt": string(c.IstioFiles()["ca-cert.pem"])},
	} {
		c.serves(t, "/api/v1/namespaces/shop/configmaps/roots", map[string]any{"data": data})
		if _, err := with.Roots(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, which lacks %q", err, says)
		}
	}
	settings.ConfigMap, settings.BundleFile = nil, "/nowhere"
	_, err := open(t, settings).Roots(t.Context())
	testkit.Fails(t, err, ourToken, ca.ErrUnavailable, "bundle_file: ")
}
