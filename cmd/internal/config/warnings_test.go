package config

import (
	"slices"
	"strings"
	"testing"
)

func TestIneffectiveSettingsAreWarnedAbout(t *testing.T) {
	const names = "secrets: [{name: default, dns_names: [web.example]}]\n"
	const pair = "files: {secrets: [{name: default, chain: c, key: k}]}\n"
	for name, c := range map[string]struct{ file, want string }{
		"nothing":                      {working, ""},
		"DNS names alone":              {working + names, "secrets.default has dns_names or ip_addresses and no spiffe_id"},
		"DNS names and a SPIFFE ID":    {working + "secrets: [{name: default, spiffe_id: spiffe://example.org/web, dns_names: [web.example]}]\n", ""},
		"DNS names without an account": {strings.Replace(working, "service_account: web\n", "", 1) + names, ""},
		"users who may not open it":    {working + "socket: {allow_uids: [1000]}\n", `no effect with socket.mode "0600"`},
		"groups who may not open it":   {working + "socket: {allow_gids: [1000], mode: '0640'}\n", `no effect with socket.mode "0640"`},
		"a mounted pair, no account":   {strings.Replace(working, "service_account: web\n", "", 1) + pair, "default comes from another program and ROOTCA does not: if file returns its roots only with a certificate"},
		"a mounted pair, an account":   {working + pair, ""},
		"a mounted pair and roots":     {strings.Replace(working, "service_account: web\n", "", 1) + "files: {secrets: [{name: default, chain: c, key: k}, {name: ROOTCA, roots: r}]}\n", ""},
		"groups who may":               {working + "socket: {allow_gids: [1000], mode: '0660'}\n", ""},
	} {
		loaded, _ := mustLoad(t, c.file, nil)
		got := loaded.Warnings()
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.ContainsFunc(got, func(w string) bool { return strings.Contains(w, c.want) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A piece of the identity must not bring in other pieces.
func TestIdentityPartsAreSingleSegments(t *testing.T) {
	for want, flags := range map[string][]Assignment{
		`trust_domain is "example.org/x"`: {flag("trust_domain", "example.org/x")},
		`namespace is "a/sa/b"`:           {flag("namespace", "a/sa/b")},
		`service_account is "a/b"`:        {flag("service_account", "a/b")},
	} {
		if _, _, err := load(working, nil, flags...); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("got %v, want %q alone", err, want)
		}
	}
	const tokens = "providers: [{name: file, sha256: " + pin + ", settings: {dir: ./ca}}]\ntrust_domain: example.org/x\nworkloads: {verified_by: authority}\n"
	if _, _, err := load(tokens, nil); err == nil || !strings.Contains(err.Error(), `trust_domain is "example.org/x"`) {
		t.Errorf("got %v", err)
	}
}
