package citadelca

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestDefaultsAreIstiodAddressAndRootFile(t *testing.T) {
	c := mustOpen(t, Settings{})
	if c.endpoint != (endpoint{"istiod.istio-system.svc:15012", "istiod.istio-system.svc", false}) || c.settings.RootFile != "./var/run/secrets/istio/root-cert.pem" {
		t.Errorf("it is %+v with the roots in %s", c.endpoint, c.settings.RootFile)
	}
}

func TestAddressGivesServerNameAndPlaintext(t *testing.T) {
	for address, want := range map[string]endpoint{
		"istiod.mesh.svc:15012":                   {"istiod.mesh.svc:15012", "istiod.mesh.svc", false},
		"istiod.mesh.svc:15010":                   {"istiod.mesh.svc:15010", "istiod.mesh.svc", true},
		"localhost:15012":                         {"localhost:15012", "istiod.istio-system.svc", false},
		"[2001:db8::1]:443":                       {"[2001:db8::1]:443", "2001:db8::1", false},
		"cert-manager-istio-csr.cert-manager:443": {"cert-manager-istio-csr.cert-manager:443", "cert-manager-istio-csr.cert-manager", false},
	} {
		if got := mustOpen(t, Settings{Address: address}).endpoint; got != want {
			t.Errorf("%s is %+v", address, got)
		}
	}
}

func TestWrongSettingsAreExplained(t *testing.T) {
	const value = "value-that-is-secret"
	for says, settings := range map[string]Settings{
		`address is "istiod": write host:port`:              {Address: "istiod"},
		`address is "istiod:0"`:                             {Address: "istiod:0"},
		`address is "istiod:https"`:                         {Address: "istiod:https"},
		`address is ":15012"`:                               {Address: ":15012"},
		`address is "https://istiod:15012"`:                 {Address: "https://istiod:15012"},
		`address is "2001:db8::1"`:                          {Address: "2001:db8::1"},
		`client_cert_file is "a" and client_key_file is ""`: {ClientCertFile: "a"},
		`client_cert_file is "" and client_key_file is "b"`: {ClientKeyFile: "b"},
		`cluster_id is "a\nb"`:                              {ClusterID: "a\nb"},
		`headers has "": a name has letters`:                {Headers: map[string]string{"": value}},
		`headers has "a b": a name has letters`:             {Headers: map[string]string{"a b": value}},
		`headers has ":path": a name has letters`:           {Headers: map[string]string{":path": value}},
		`headers has "Authorization": the token comes`:      {Headers: map[string]string{"Authorization": value}},
		`headers has "CLUSTERID": set cluster_id`:           {Headers: map[string]string{"CLUSTERID": value}},
		`headers has "grpc-timeout": the name is reserved`:  {Headers: map[string]string{"grpc-timeout": value}},
		`headers has "te": the name is reserved`:            {Headers: map[string]string{"te": value}},
		`headers.x: the value is not printable`:             {Headers: map[string]string{"X": value + "\n"}},
	} {
		_, err := Open(settings)
		mustBe(t, err, ca.ErrInvalid, strings.ReplaceAll(says, "\n", `\n`))
		if err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("the value is shown: %v", err)
		}
	}
}
