package config

import (
	"slices"
	"testing"
)

const running = `
trust_domain: example.org
namespace: default
service_account: web
providers:
- {name: file, sha256: "` + pin + `", settings: {dir: ./ca, api_token: one}}
- {name: other, sha256: "` + pin + `"}
default_provider: file
secrets: [{name: api.v1, dns_names: [a.example]}, {name: gone, dns_names: [b.example]}]
`

func TestChangedSettingsAndRestartsAreNamed(t *testing.T) {
	for file, want := range map[string]struct{ changed, restart []string }{
		running: {},
		`
trust_domain: example.com
namespace: default
service_account: web
socket: {path: ./s, allow_uids: [7]}
log: {level: debug, format: json}
rotation: {ratio: 0.4}
providers:
- {name: file, sha256: "` + pin + `", settings: {dir: ./ca, api_token: two, max_ttl: 1h}, identity_check: any}
- {name: third, sha256: "` + pin + `"}
default_provider: file
secrets: [{name: api.v1, dns_names: [c.example]}, {name: new, dns_names: [b.example]}]
`: {
			[]string{
				"trust_domain", "providers.file.settings.api_token", "providers.file.settings.max_ttl", "providers.file.identity_check", "providers.third",
				"secrets.api.v1.dns_names", "secrets.new", "rotation.ratio", "socket.path", "socket.allow_uids", "log.level", "log.format",
				"providers.other", "secrets.gone",
			},
			[]string{"socket.path", "log.format"},
		},
	} {
		got := Changed(read(t, running), read(t, file))
		if restart := NeedRestart(got); !slices.Equal(got, want.changed) || !slices.Equal(restart, want.restart) {
			t.Errorf("got\n%q\n%q, want\n%q\n%q", got, restart, want.changed, want.restart)
		}
	}
}

func TestDerivedSettingIsNotNamed(t *testing.T) {
	before := read(t, working)
	if got := Changed(before, read(t, working+"ttl: 1h\n")); !slices.Equal(got, []string{"ttl"}) {
		t.Errorf("got %q", got)
	}
	if got := Changed(before, read(t, working+"secrets: [{name: default, ttl: 24h}]\n")); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func read(t *testing.T, file string) Config {
	t.Helper()
	c, _, err := Read(Input{File: []byte(file), FileName: "c.yaml"})
	if err == nil {
		err = c.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}
