package kubeca

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func signRequest(t *testing.T, name string) ca.SignRequest {
	t.Helper()
	req, _ := testkit.Request(t, "", name+".example.org")
	return req
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for says, change := range map[string]func(*Settings){
		"neither signer_name nor issuer":          func(s *Settings) { s.SignerName = "" },
		"are both set":                            func(s *Settings) { s.Issuer = &Issuer{Name: "mesh"} },
		`namespace is "shop", but`:                func(s *Settings) { s.Namespace = "shop" },
		`signer_name is "mesh": want DOMAIN/NAME`: func(s *Settings) { s.SignerName = "mesh" },
		`signer_name is "example.org/../x"`:       func(s *Settings) { s.SignerName = "example.org/../x" },
		`issuer.name is "": want the name`:        func(s *Settings) { s.SignerName, s.Issuer = "", &Issuer{} },
		`issuer.kind is "a/b"`:                    func(s *Settings) { s.SignerName, s.Issuer = "", &Issuer{"mesh", "a/b", ""} },
		`issuer.group is "a/b"`:                   func(s *Settings) { s.SignerName, s.Issuer = "", &Issuer{"mesh", "", "a/b"} },
		`namespace is "../x"`:                     func(s *Settings) { s.SignerName, s.Issuer, s.Namespace = "", &Issuer{Name: "mesh"}, "../x" },
		`config_map.namespace is ""`:              func(s *Settings) { s.BundleFile, s.ConfigMap = "", &ConfigMap{Name: "roots"} },
		`config_map.name is "a/b"`:                func(s *Settings) { s.BundleFile, s.ConfigMap = "", &ConfigMap{Namespace: "shop", Name: "a/b"} },
		`config_map.key is "a/b"`:                 func(s *Settings) { s.BundleFile, s.ConfigMap = "", &ConfigMap{"shop", "roots", "a/b"} },
		`cluster_trust_bundle is "a/b"`:           func(s *Settings) { s.BundleFile, s.ClusterTrustBundle = "", "a/b" },
		"more than one of bundle_file":            func(s *Settings) { s.ClusterTrustBundle = "mesh" },
		"does not contain the roots":              func(s *Settings) { s.BundleFile = "" },
		`kubeconfig is "/k", so url`:              func(s *Settings) { s.Kubeconfig = "/k" },
		`context is "c", but kubeconfig`:          func(s *Settings) { s.Context = "c" },
		"which one is the credential?":            func(s *Settings) { s.UseRequestToken = true },
		"use_request_token has no token for them": func(s *Settings) {
			s.TokenFile, s.UseRequestToken, s.BundleFile, s.ClusterTrustBundle = "", true, "", "mesh"
		},
		"use_request_token is set, and so is token_": func(s *Settings) {
			s.TokenFile, s.UseRequestToken, s.TLS = "", true, setting.TLS{ClientCertFile: "/c", ClientKeyFile: "/k"}
		},
	} {
		settings := newSettings()
		change(&settings)
		_, err := Open(settings)
		testkit.Fails(t, err, ourToken, ca.ErrInvalid, says)
	}
	if err := newSettings().Validate(); err != nil {
		t.Error(err)
	}
}

func newSettings() Settings {
	return Settings{SignerName: "example.org/mesh", TokenFile: "/t", BundleFile: "/b"}
}

func TestOnlineCheckNamesMissingRights(t *testing.T) {
	c := newCluster(t)
	for name, settings := range map[string]Settings{"signer": c.direct(), "issuer": c.issuing()} {
		if found := settings.ValidateOnline(t.Context()); len(found) != 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
	for verb, warns := range map[string]bool{"create": false, "get": false, "watch": true, "delete": true, "list": true} {
		c.set(func() { c.plain = map[string]string{"no " + verb: "1"} })
		if found := c.issuing().ValidateOnline(t.Context()); len(found) != 1 || found[0].Warning != warns || found[0].Summary != "the credential may not "+verb+" certificaterequests" {
			t.Errorf("%s: %+v", verb, found)
		}
	}
	wrong := c.direct()
	wrong.BundleFile = "/nowhere"
	if found := wrong.ValidateOnline(t.Context()); len(found) != 1 || found[0].Warning || !strings.Contains(found[0].Summary, "bundle_file") {
		t.Errorf("%+v", found)
	}
	c.answers(http.MethodPost, http.StatusUnauthorized, "", `{"message":"who?"}`)
	if found := c.direct().ValidateOnline(t.Context()); len(found) != 1 || found[0].Warning || !strings.Contains(found[0].Summary, "with 401: who?") {
		t.Errorf("%+v", found)
	}
	byRequest := c.direct()
	byRequest.TokenFile, byRequest.UseRequestToken = "", true
	if found := byRequest.ValidateOnline(t.Context()); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	return content
}

func jsonOf(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return text
}
