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
- {name: file, sha256: "` + pin + `", settings: {dir: ./ca}}
- {name: other, sha256: "` + pin + `"}
default_provider: file
`

func TestOnlyWhatARunningAgentCannotTakeOverNeedsARestart(t *testing.T) {
	for file, want := range map[string][]string{
		running: nil,
		`
trust_domain: example.com
namespace: default
service_account: web
socket: {path: ./s}
log: {level: debug}
providers:
- {name: file, sha256: "` + pin + `", settings: {dir: ./another}, env: {A: b}, identity_check: any, token_file: ./token}
- {name: third, sha256: "` + pin + `"}
default_provider: file
`: {"trust_domain", "secrets", "socket.path", "log.level", "providers.file.token_file", "providers.file.identity_check", "providers.third", "providers.other"},
	} {
		got := NeedRestart(read(t, running), read(t, file))
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
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
