package config

import (
	"maps"
	"reflect"
	"strings"
	"testing"
)

const privateCA = "arn:aws-cn:acm-pca:cn-north-1:123456789012:certificate-authority/0b2cbf04-5a3c-4fd3-9d73-2a3f5c1b8d10"

func TestFirstMatchingRuleChoosesAuthority(t *testing.T) {
	const (
		two    = "providers: [{name: a, provider: file}, {name: b, provider: citadel}]\n"
		custom = "providers: [{name: mesh, provider: citadel}]\n"
		addr   = "the address" // not among the settings
	)
	type set = map[string]any
	for _, test := range []struct {
		environ, file string
		want          Choice
		settings      set
	}{
		// CA_PROVIDER, in any case, Istio's names and our own.
		{"CA_PROVIDER=Citadel", "", Choice{"citadel", "citadel", `CA_PROVIDER is "Citadel"`}, nil},
		{"CA_PROVIDER=CITADEL CA_ADDR=i.svc:15012", "", Choice{"citadel", "citadel", `CA_PROVIDER is "CITADEL"`}, set{addr: "i.svc:15012"}},
		{"CA_PROVIDER=citadel CA_ADDR=citadel://i.svc:15012", "", Choice{"citadel", "citadel", `CA_PROVIDER is "citadel"`}, set{addr: "i.svc:15012"}},
		{"CA_PROVIDER=Citadel CA_ADDR=meshca.example:15012", "", Choice{"citadel", "citadel", `CA_PROVIDER is "Citadel"`}, set{addr: "meshca.example:15012"}},
		{"CA_PROVIDER=File CA_ADDR=file:///etc/ca", "", Choice{"file", "file", `CA_PROVIDER is "File"`}, set{addr: "/etc/ca"}},
		{"CA_PROVIDER=GoogleCA CA_ADDR=meshca.googleapis.com:443", "", Choice{"google", "google", `CA_PROVIDER is "GoogleCA"`}, set{"protocol": "meshca", addr: "meshca.googleapis.com:443"}},
		{"CA_PROVIDER=GoogleCAS CA_ADDR=projects/p/locations/l/caPools/n", "", Choice{"google", "google", `CA_PROVIDER is "GoogleCAS"`}, set{"protocol": "cas", addr: "projects/p/locations/l/caPools/n"}},
		{"CA_PROVIDER=GoogleCAS", "providers: [{name: google}]", Choice{"google", "google", `CA_PROVIDER is "GoogleCAS"`}, nil},
		{"CA_PROVIDER=Vault CA_ADDR=https://vault:8200", "", Choice{"vault", "vault", `CA_PROVIDER is "Vault"`}, set{addr: "https://vault:8200"}},
		{"CA_PROVIDER=Vault CA_ADDR=vault:8200", "", Choice{"vault", "vault", `CA_PROVIDER is "Vault"`}, set{addr: "vault:8200"}},
		{"CA_PROVIDER=Vault", "", Choice{"vault", "vault", `CA_PROVIDER is "Vault"`}, nil},
		// … among what is configured: by the entry's name, else by its provider's.
		{"CA_PROVIDER=A", two, Choice{"a", "file", `CA_PROVIDER is "A"`}, nil},
		{"CA_PROVIDER=B CA_ADDR=i.svc:15012", two, Choice{"b", "citadel", `CA_PROVIDER is "B"`}, set{addr: "i.svc:15012"}},
		{"CA_PROVIDER=Citadel", two, Choice{"b", "citadel", `CA_PROVIDER is "Citadel"`}, nil},
		// The scheme of CA_ADDR.
		{"CA_ADDR=file:///etc/ca", "", Choice{"file", "file", "CA_ADDR begins with file:"}, set{addr: "/etc/ca"}},
		{"CA_ADDR=acme://ca.example/directory", "", Choice{"acme", "acme", "CA_ADDR begins with acme:"}, set{addr: "ca.example/directory"}},
		{"CA_ADDR=googlecas://projects/p/locations/l/caPools/n", "", Choice{"google", "google", "CA_ADDR begins with googlecas:"}, set{"protocol": "cas", addr: "projects/p/locations/l/caPools/n"}},
		{"CA_ADDR=Vault://vault:8200/pki", "", Choice{"vault", "vault", "CA_ADDR begins with vault:"}, set{addr: "vault:8200/pki"}},
		{"CA_ADDR=corp://vault:8200", "providers: [{name: corp, provider: vault}]", Choice{"corp", "vault", "CA_ADDR begins with corp:"}, set{addr: "vault:8200"}},
		{"CA_ADDR=corp://vault:8200 CA_PROVIDER=Corp", "providers: [{name: corp, provider: vault}]", Choice{"corp", "vault", `CA_PROVIDER is "Corp"`}, set{addr: "vault:8200"}},
		{"CA_ADDR=mesh://i.svc:15012", custom, Choice{"mesh", "citadel", "CA_ADDR begins with mesh:"}, set{addr: "i.svc:15012"}},
		{"CA_ADDR=citadel://i.svc:15012", custom, Choice{"mesh", "citadel", "CA_ADDR begins with citadel:"}, set{addr: "i.svc:15012"}},
		// What is Google's.
		{"CA_ADDR=meshca.googleapis.com:443", "", Choice{"google", "google", "CA_ADDR is an address at Google"}, set{"protocol": "meshca", addr: "meshca.googleapis.com:443"}},
		{"CA_ADDR=meshca.example:443", "", Choice{"google", "google", "CA_ADDR is an address at Google"}, set{"protocol": "meshca", addr: "meshca.example:443"}},
		{"CA_ADDR=projects/p/locations/l/caPools/n", "", Choice{"google", "google", "CA_ADDR is a Google CA pool"}, set{"protocol": "cas", addr: "projects/p/locations/l/caPools/n"}},
		// What is AWS's.
		{"CA_ADDR=" + privateCA, "", Choice{"aws", "aws", "CA_ADDR is an ARN of AWS"}, set{addr: privateCA}},
		{"CA_PROVIDER=AWS CA_ADDR=" + privateCA, "", Choice{"aws", "aws", `CA_PROVIDER is "AWS"`}, set{addr: privateCA}},
		{"CA_ADDR=aws://" + privateCA, "providers: [{name: pca, provider: aws}]", Choice{"pca", "aws", "CA_ADDR begins with aws:"}, set{addr: privateCA}},
		// host:port is istiod's, and the entry of the file keeps its other settings.
		{"CA_ADDR=i.svc:15012", "", Choice{"citadel", "citadel", "CA_ADDR is host:port, as istiod's is"}, set{addr: "i.svc:15012"}},
		{"CA_ADDR=i.svc:15012", custom, Choice{"mesh", "citadel", "CA_ADDR is host:port, as istiod's is"}, set{addr: "i.svc:15012"}},
		// There is no warning.
		{"ISTIOD_SAN=x", "", Choice{"citadel", "citadel", "CA_PROVIDER, CA_ADDR and providers are unset: istiod at its usual address"}, set{"server_name": "x"}},
		{"ISTIOD_SAN=x", custom, Choice{"mesh", "citadel", "it is the only configured provider"}, set{"server_name": "x"}},
		{"", two + "default_provider: a", Choice{"a", "file", "default_provider names it"}, nil},
		{"COUNTERSIGN_DEFAULT_PROVIDER=b ISTIOD_SAN=x", two + "default_provider: a", Choice{"b", "citadel", "COUNTERSIGN_DEFAULT_PROVIDER names it"}, set{"server_name": "x"}},
		{"CA_PROVIDER=A", two + "secrets: [{name: default, providers: [b, a]}]", Choice{"b", "citadel", "secrets.default names it"}, nil},
		{"CA_PROVIDER=A", two + "secrets: [{name: default, provider: b}]", Choice{"b", "citadel", "secrets.default names it"}, nil},
	} {
		c, warnings := mustLoad(t, test.file, append(strings.Fields(test.environ), identity...))
		if got := c.Choice(); got != test.want || c.Secrets[0].Providers[0] != got.Entry || len(warnings) > 0 {
			t.Errorf("%s: got %+v, want %+v; warnings %q", test.environ, got, test.want, warnings)
		}
		for _, p := range c.Providers {
			if p.Name == test.want.Entry && (p.Provider != test.want.Provider || !sameSettings(p, test.settings)) {
				t.Errorf("%s: the entry is %+v, want %v", test.environ, p, test.settings)
			}
		}
	}
}

func sameSettings(p Provider, want map[string]any) bool {
	got := map[string]any{}
	maps.Copy(got, p.Settings)
	if p.Address != "" {
		got["the address"] = p.Address
	}
	return len(got) == 0 && len(want) == 0 || reflect.DeepEqual(got, want)
}

func TestImpossibleCAAddressIsRefused(t *testing.T) {
	for environ, want := range map[string]string{
		"CA_ADDR=file://relative/ca":                                    `CA_ADDR is "file://relative/ca": write file:///FOLDER`,
		"CA_ADDR=file:relative":                                         `CA_ADDR is "file:relative": write file:///FOLDER`,
		"CA_ADDR=istiod":                                                `CA_ADDR is "istiod": write host:port of istiod, or file:///FOLDER`,
		"CA_ADDR=citadel://istiod":                                      `CA_ADDR is "citadel://istiod": write host:port`,
		"CA_ADDR=a_b://c":                                               `CA_ADDR is "a_b://c": write PROVIDER://ADDRESS`,
		"CA_ADDR=googlecas://ca.googleapis.com:443":                     `CA_ADDR is "googlecas://ca.googleapis.com:443": write projects/P/locations/L/caPools/N`,
		"CA_ADDR=citadel://u:geheim@istiod":                             `CA_ADDR is "citadel://u:xxxxx@istiod": write host:port`,
		"CA_ADDR=u:geheim@istiod:15012":                                 `CA_ADDR is "u:xxxxx@istiod:15012": write host:port`,
		"CA_ADDR=citadel://https://u:geheim@istiod":                     `CA_ADDR is "citadel://https://u:xxxxx@istiod": write host:port`,
		"CA_ADDR=istiod?:15012":                                         `CA_ADDR is "istiod?:15012": write host:port`,
		"CA_ADDR=file:///ca CA_PROVIDER=vault":                          `CA_ADDR is "file:///ca" and CA_PROVIDER is "vault": only the provider "file" takes a folder`,
		"CA_ADDR=file:///ca CA_PROVIDER=Citadel":                        `CA_ADDR is "file:///ca" and CA_PROVIDER is "Citadel": only the provider`,
		"CA_ADDR=vault://v:1 CA_PROVIDER=Citadel":                       `CA_ADDR is "vault://v:1" and CA_PROVIDER is "Citadel": write host:port`,
		"CA_ADDR=istiod:15012 CA_PROVIDER=File":                         `CA_ADDR is "istiod:15012" and CA_PROVIDER is "File": write file:///FOLDER`,
		"CA_ADDR=x.googleapis.com:1 CA_PROVIDER=GoogleCAS":              `and CA_PROVIDER is "GoogleCAS": write projects/P`,
		"CA_ADDR=projects/p/locations/l/caPools/n CA_PROVIDER=GoogleCA": `and CA_PROVIDER is "GoogleCA": write projects/P`,
		"CA_PROVIDER=GoogleCA":                                          `CA_PROVIDER is "GoogleCA": set CA_ADDR, too: projects/P/locations/L/caPools/N for GoogleCAS`,
		"CA_ADDR=" + privateCA + " CA_PROVIDER=citadel":                 `and CA_PROVIDER is "citadel": write host:port`,
		"CA_ADDR=https://vault:8200":                                    `CA_ADDR is "https://vault:8200": a URL does not say which provider to use: write PROVIDER://ADDRESS, as in vault://vault:8200, or set CA_PROVIDER`,
		"CA_ADDR=http://u:geheim@127.0.0.1:8200":                        `as in vault://http://u:xxxxx@127.0.0.1:8200, or set`,
		"CA_ADDR=vault://":                                              `CA_ADDR is "vault://": write PROVIDER://ADDRESS, or CA_PROVIDER alone`,
		"CA_PROVIDER=a/b":                                               `CA_PROVIDER is "a/b": must be an installed provider`,
	} {
		_, _, err := load("", append(strings.Fields(environ), identity...))
		wantError(t, err, want)
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: the password is shown: %v", environ, err)
		}
	}
}
