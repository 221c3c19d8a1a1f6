package secrets

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestResourceNamesParse(t *testing.T) {
	long := strings.Repeat("a", 253)
	for name, want := range map[string]ref{
		"kubernetes://foo":                               {kubernetesScheme, "", "foo", false},
		"kubernetes://foo-cacert":                        {kubernetesScheme, "", "foo-cacert", true},
		"kubernetes://shop/foo":                          {kubernetesScheme, "shop", "foo", false},
		"kubernetes://shop/foo.example.org":              {kubernetesScheme, "shop", "foo.example.org", false},
		"kubernetes://shop/foo-cacert":                   {kubernetesScheme, "shop", "foo-cacert", true},
		"kubernetes-gateway://shop/foo":                  {gatewayScheme, "shop", "foo", false},
		"kubernetes-gateway://shop/foo-cacert":           {gatewayScheme, "shop", "foo-cacert", true},
		"configmap://shop/foo":                           {configMapScheme, "shop", "foo", true},
		"configmap://shop/foo-cacert":                    {configMapScheme, "shop", "foo-cacert", true},
		"kubernetes-gateway://" + long[:63] + "/" + long: {gatewayScheme, long[:63], long, false},
	} {
		if got, err := parse(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestInvalidResourceNamesAreRefused(t *testing.T) {
	long := strings.Repeat("a", 254)
	for _, name := range []string{
		"", "foo", "default", "ROOTCA", "*", "file-cert:a~b", "kubernetes", "kubernetes:", "kubernetes:/", "kubernetes:/foo", "Kubernetes://foo", " kubernetes://foo",
		"kubernetes://", "kubernetes:///", "kubernetes:///foo", "kubernetes://shop/", "kubernetes://shop/foo/bar", "kubernetes://shop//foo", "kubernetes://shop/foo/",
		"kubernetes://..", "kubernetes://../foo", "kubernetes://shop/..", "kubernetes://shop/../foo", "kubernetes://shop/a..b", "kubernetes://./foo",
		"kubernetes://shop%2ffoo", "kubernetes://shop/fo%6f", "kubernetes://foo\x00", "kubernetes://foo\n", "kubernetes://foo ", "kubernetes://shop/foo\x00-cacert",
		"kubernetes://fоо", "kubernetes://shop／foo", "kubernetes://f\xff", "kubernetes://Foo", "kubernetes://foo_bar", "kubernetes://-cacert", "kubernetes://shop/-cacert",
		"kubernetes://shop.prod/foo", "kubernetes://foo:8080", "kubernetes://foo?x", "kubernetes://user@foo", "kubernetes://kubernetes://foo", "kubernetes://shop\\foo",
		"kubernetes-gateway://foo", "kubernetes-gateway:///foo", "kubernetes-gateway://shop/", "kubernetes-gateway://shop/foo/bar", "configmap://foo", "configmap://shop/", "configmap:///foo",
		"kubernetes://" + long, "kubernetes://" + long[:64] + "/foo", "kubernetes-gateway://shop/" + strings.Repeat("a", 1<<20),
	} {
		if got, err := parse(name); err == nil {
			t.Errorf("%.100q is taken as %+v", name, got)
		}
	}
}

func TestCACertNameFallsBackToSecret(t *testing.T) {
	for object, want := range map[string]string{
		"foo": "foo", "foo-cacert": "foo-cacert foo", "foo-cacert-cacert": "foo-cacert-cacert foo-cacert", "a--cacert": "a--cacert",
	} {
		if got := strings.Join((ref{object: object}).objects(), " "); got != want {
			t.Errorf("%s: %s", object, got)
		}
	}
}

func FuzzResourceName(f *testing.F) {
	for _, name := range []string{"kubernetes://foo", "kubernetes://shop/foo-cacert", "kubernetes-gateway://shop/foo", "configmap://shop/foo", "kubernetes://shop/../foo", "kubernetes://f%00"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		r, err := parse(name)
		if err != nil {
			if r != (ref{}) || len(err.Error()) > 200 {
				t.Errorf("%q is refused with %+v, %v", name, r, err)
			}
			return
		}
		whole := string(r.scheme) + "://" + r.object
		if r.namespace != "" {
			whole = string(r.scheme) + "://" + r.namespace + "/" + r.object
		}
		if whole != name || len(name) > maxName {
			t.Errorf("%q is read as %q", name, whole)
		}
		if strings.Contains(r.object, "..") || strings.ContainsFunc(r.namespace+r.object, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
		}) {
			t.Errorf("%q is taken", name)
		}
		if !r.ca && (r.scheme == configMapScheme || strings.HasSuffix(name, caSuffix)) {
			t.Errorf("%q is not a CA", name)
		}
	})
}

func FuzzNamesMatchKubernetesValidation(f *testing.F) {
	label := strings.Repeat("a", validation.DNS1123LabelMaxLength)
	name := strings.Repeat("a.", validation.DNS1123SubdomainMaxLength/2) + "a"
	for _, text := range []string{
		"", "a", "0", "-", ".", "a-b", "-a", "a-", "a--b", "a.b", "a-.b", "a.-b", "a..b", ".a", "a.", "A", "a_b", "a b", "a\n", "\na", "a\x00", "ａ", "\xff", "a/b", "`", "{", ":",
		label, label + "a", label + "a.b", name, name + "a", name + ".",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if want := len(validation.IsDNS1123Label(text)) == 0; isNamespace(text) != want {
			t.Errorf("isNamespace(%q) is not %t", text, want)
		}
		if want := len(validation.IsDNS1123Subdomain(text)) == 0; isObject(text) != want {
			t.Errorf("isObject(%q) is not %t", text, want)
		}
	})
}
