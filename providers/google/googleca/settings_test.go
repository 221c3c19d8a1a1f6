package googleca

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestWrongSettingsAreExplained(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many["label-"+strings.Repeat("x", i%50)+string(rune('a'+i/50))] = "x"
	}
	mesh := Settings{Protocol: MeshCA, Endpoint: "mesh:443", Location: "us-central1-c"}
	with := func(s Settings, change func(*Settings)) Settings { change(&s); return s }
	pool := Settings{CAPool: thePool}
	for says, settings := range map[string]Settings{
		`protocol is "vault": want cas or meshca`:                            {Protocol: "vault"},
		`ca_pool is "": write projects/P/locations/L/caPools/N`:              {},
		`ca_pool is "mesh": write`:                                           {CAPool: "mesh"},
		`ca_pool is "projects/a/locations/b/caPools/c/certificates/d"`:       {CAPool: "projects/a/locations/b/caPools/c/certificates/d"},
		`ca_pool is "projects/a\nb/locations/b/caPools/c"`:                   {CAPool: "projects/a\nb/locations/b/caPools/c"},
		`certificate_template is "workload": write projects/P`:               with(pool, func(s *Settings) { s.CertificateTemplate = "workload" }),
		`is in europe-west1 and ca_pool in us-central1: both must be`:        with(pool, func(s *Settings) { s.CertificateTemplate = "projects/p/locations/europe-west1/certificateTemplates/t" }),
		`issuing_ca is "projects/x": write the ID`:                           with(pool, func(s *Settings) { s.IssuingCA = "projects/x" }),
		`subject_mode is "spiffe": want csr or reflected-spiffe`:             with(pool, func(s *Settings) { s.SubjectMode = "spiffe" }),
		`roots_interval is 1s: want a duration of at least 10s`:              with(pool, func(s *Settings) { s.RootsInterval = time.Second }),
		`labels has 65 entries, more than 64`:                                with(pool, func(s *Settings) { s.Labels = many }),
		`a name has 1 to 63 characters`:                                      with(pool, func(s *Settings) { s.Labels = map[string]string{"": "x"} }),
		`location is "us-central1-c": it is for the protocol meshca`:         with(pool, func(s *Settings) { s.Location = "us-central1-c" }),
		`endpoint is "https://privateca.googleapis.com": write host:port`:    with(pool, func(s *Settings) { s.Endpoint = "https://privateca.googleapis.com" }),
		`endpoint is "privateca.googleapis.com:0"`:                           with(pool, func(s *Settings) { s.Endpoint = "privateca.googleapis.com:0" }),
		`universe_domain is "https://x": write a domain`:                     with(pool, func(s *Settings) { s.UniverseDomain = "https://x" }),
		`credentials is "gcloud": want adc, file or token`:                   with(pool, func(s *Settings) { s.Credentials = "gcloud" }),
		`credentials is "file" and credentials_file is ""`:                   with(pool, func(s *Settings) { s.Credentials = File }),
		`credentials is "token" and credentials_file is "/k"`:                with(pool, func(s *Settings) { s.Credentials, s.CredentialsFile = Token, "/k" }),
		`quota_project is "a b": write a project's ID`:                       with(pool, func(s *Settings) { s.QuotaProject = "a b" }),
		`endpoint is not set: the protocol meshca needs the host:port`:       with(mesh, func(s *Settings) { s.Endpoint = "" }),
		`certificate_authority is "mesh": write projects/P/`:                 with(mesh, func(s *Settings) { s.CertificateAuthority = "mesh" }),
		`it is for the protocol meshca; set issuing_ca`:                      with(pool, func(s *Settings) { s.CertificateAuthority = "mesh" }),
		`location is "": the protocol meshca needs a zone`:                   with(mesh, func(s *Settings) { s.Location = "" }),
		`location is "https://container.googleapis.com/v1/projects/p": the`:  with(mesh, func(s *Settings) { s.Location = "https://container.googleapis.com/v1/projects/p" }),
		`ca_pool is "projects/shop-1/locations/us-central1/caPools/mesh": i`: with(mesh, func(s *Settings) { s.CAPool = thePool }),
		`universe_domain is "x.example": it is for the protocol cas`:         with(mesh, func(s *Settings) { s.UniverseDomain = "x.example" }),
		`subject_mode, labels and roots_interval are for the protocol cas`:   with(mesh, func(s *Settings) { s.Labels = map[string]string{"a": "b"} }),
		`credentials is "adc": Mesh CA needs the token of a request`:         with(mesh, func(s *Settings) { s.Credentials = ADC }),
	} {
		_, err := Open(t.Context(), settings)
		mustBe(t, err, ca.ErrInvalid, says)
	}
}

func TestZoneIsAWordOrFromClusterURL(t *testing.T) {
	for location, want := range map[string]string{
		"us-central1-c": "us-central1-c",
		"https://container.googleapis.com/v1/projects/p/locations/us-central1/clusters/c":           "us-central1",
		"https://container.googleapis.com/v1/projects/p/zones/us-central1-c/clusters/c":             "us-central1-c",
		"https://container.googleapis.com/v1beta1/projects/x:p/locations/us-central1-c/clusters/c1": "us-central1-c",
		"http://container.googleapis.com/v1/projects/p/locations/us-central1/clusters/c":            "",
		"https://container.googleapis.com/v1/projects/p/locations/us-central1":                      "",
		"us central1": "",
	} {
		if got := (Settings{Location: location}).zone(); got != want {
			t.Errorf("%s is in %q, want %q", location, got, want)
		}
	}
}

func TestCredentialsDefaultFollowsOtherSettings(t *testing.T) {
	got := map[string]string{
		"cas":          Settings{}.withDefaults().Credentials,
		"with a file":  Settings{CredentialsFile: "/k"}.withDefaults().Credentials,
		"with a token": Settings{Credentials: Token}.withDefaults().Credentials,
		"meshca":       Settings{Protocol: MeshCA}.withDefaults().Credentials,
	}
	if want := (map[string]string{"cas": ADC, "with a file": File, "with a token": Token, "meshca": Token}); !maps.Equal(got, want) {
		t.Errorf("got %v", slices.Sorted(maps.Values(got)))
	}
}
