package config

import (
	"strings"
	"testing"
)

// withToken is a working file whose provider has these lines below token.
func withToken(lines string) string {
	return working + "    token:\n      " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n      ") + "\n"
}

func TestWholeTokenBlockIsRead(t *testing.T) {
	c, _ := mustLoad(t, withToken(`
sources:
  - {file: /token, optional: true}
  - {env: MY_TOKEN}
  - {command: [/bin/print-token, --now]}
  - {gce: {audience: istio-ca}}
exchange:
  - {url: https://sts.example.org/token, root_file: /roots, audience: a, resource: r, scopes: [s, t], subject_token_type: u:s,
     requested_token_type: u:r, client: {id: me, secret_file: /secret}, actor_file: /actor, allow_loopback_http: true}
  - {provider: true}
`), nil)
	got := c.Providers[0].Token
	sources, first := c.Providers[0].TokenSources(), got.Exchange[0]
	if len(sources) != 4 || !sources[0].Optional || sources[1].Env != "MY_TOKEN" || sources[2].Command[1] != "--now" || sources[3].GCE.Audience != "istio-ca" {
		t.Errorf("sources %+v", sources)
	}
	if first.Client.ID != "me" || first.ActorFile != "/actor" || len(first.Scopes) != 2 || !got.Exchange[1].Provider {
		t.Errorf("exchange %+v", got.Exchange)
	}
}

func TestTokenComesFromFileOrVariable(t *testing.T) {
	c, _ := mustLoad(t, withToken("{file: /token, optional: true}"), nil)
	if got := c.Providers[0].TokenSources(); len(got) != 1 || got[0].File != "/token" || !got[0].Optional {
		t.Errorf("%+v", got)
	}
	one, _ := mustLoad(t, working, []string{"MY_TOKEN=x"}, flag("providers.file.token.env", "MY_TOKEN"))
	if got := one.Providers[0].Token.Env; got != "MY_TOKEN" {
		t.Errorf("by --set: %q", got)
	}
}

func TestIstioTokenIsDefaultOfCitadelOnly(t *testing.T) {
	file := strings.ReplaceAll(working, "name: file", "name: citadel")
	c, _ := mustLoad(t, file, nil)
	if got := c.Providers[0].TokenSources()[0].File; got != istioToken {
		t.Errorf("by default %q", got)
	}
	c, _ = mustLoad(t, strings.ReplaceAll(withToken("{gce: {audience: x}}"), "name: file", "name: citadel"), nil)
	if got := c.Providers[0].TokenSources(); len(got) != 1 || got[0].GCE.Audience != "x" {
		t.Errorf("where it is set: %+v", got)
	}
}

func TestMeaninglessTokenBlockIsRefused(t *testing.T) {
	for lines, says := range map[string]string{
		"{file: /a, env: B}":                                       "providers.file.token has 2 sources of a token",
		"{sources: [{}]}":                                          "providers.file.token.sources.0 has 0 sources of a token",
		"{file: /a, sources: [{env: B}]}":                          "move the source into the list",
		"{env: B, optional: true}":                                 "only a file can be optional",
		"{command: [kubectl]}":                                     "write the program's absolute path",
		"{command: []}":                                            "has 0 sources of a token",
		"{exchange: [{provider: true}]}":                           "has no token to exchange",
		"{env: B, exchange: [{}]}":                                 "exchange.0.url is not set",
		"{env: B, exchange: [{provider: true, url: https://x}]}":   "exchange.0 has provider and url",
		"{env: B, exchange: {url: x}}":                             "write a list",
		"{flie: x}":                                                `did you mean "providers.file.token.file"`,
		"{env: B, exchange: [{url: x, client: {secret_fiel: u}}]}": `did you mean`,
	} {
		if _, _, err := load(withToken(lines), nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", lines, err)
		}
	}
	if _, _, err := load(withToken("{env: B}"), nil, flag("providers.file.token.sources.0.env", "C")); err == nil || !strings.Contains(err.Error(), "have no names; write them in the file") {
		t.Errorf("a list by --set: %v", err)
	}
}

func TestChangedTokenBlockNeedsNoRestart(t *testing.T) {
	old, _ := mustLoad(t, withToken("{file: /a}"), nil)
	now, _ := mustLoad(t, withToken("{env: B, exchange: [{provider: true}]}"), []string{"B=x"})
	changed := Changed(old, now)
	if got := strings.Join(changed, " "); !strings.Contains(got, "providers.file.token.env") || !strings.Contains(got, "providers.file.token.exchange") {
		t.Errorf("changed is %s", got)
	}
	if names := NeedRestart(changed); len(names) > 0 {
		t.Errorf("%q need a restart", names)
	}
}

func TestGoogleFetcherUsesMetadataServer(t *testing.T) {
	for _, environ := range [][]string{
		{"TRUST_DOMAIN=mesh.example.org"}, {"TRUST_DOMAIN=mesh.example.org", "PROV_CERT=/certs"}, {"TRUST_DOMAIN=mesh.example.org", "JWT_POLICY=first-party-jwt"},
	} {
		environ = append(environ, "CA_ADDR=istiod:15012", "CREDENTIAL_FETCHER_TYPE=GoogleComputeEngine", "POD_NAMESPACE=n", "SERVICE_ACCOUNT=s", "COUNTERSIGN_DEV=true")
		c, _ := mustLoad(t, "", environ)
		if got := c.Providers[0].TokenSources(); len(got) != 1 || got[0].GCE.Audience != "mesh.example.org" {
			t.Errorf("%v: %+v", environ, got)
		}
	}
	c, _ := mustLoad(t, "trust_domain: file.example.org", []string{"CA_ADDR=istiod:15012", "CREDENTIAL_FETCHER_TYPE=GoogleComputeEngine", "POD_NAMESPACE=n", "SERVICE_ACCOUNT=s", "COUNTERSIGN_DEV=true"})
	if got := c.Providers[0].TokenSources()[0].GCE.Audience; got != "file.example.org" {
		t.Errorf("the file's trust domain is not the audience, but %q", got)
	}
	_, _, err := load("", []string{"CA_ADDR=istiod:15012", "CREDENTIAL_FETCHER_TYPE=Magic"})
	if err == nil || !strings.Contains(err.Error(), `CREDENTIAL_FETCHER_TYPE is "Magic": must be JWT or GoogleComputeEngine`) {
		t.Error(err)
	}
}
