package config

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// pinned completes a configuration with a lock file that pins provider as "vault", whose address is
// the setting url.
func pinned(t *testing.T, file string, environ []string, flags ...Assignment) (Config, error) {
	t.Helper()
	c, _, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Environ: append(environ, identity[:2]...), Flags: flags})
	if err == nil {
		err = c.Pin("countersign.lock", locks(lock.Provider{Name: "vault", SHA256: pin, AddressSettings: []lock.AddressSetting{{Setting: "url", Form: "url", Pattern: "^https://"}}}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, c.Complete()
}

// locks returns a lock file with one build for this platform.
func locks(p lock.Provider) *lock.Lock {
	p.OS, p.Arch = runtime.GOOS, runtime.GOARCH
	return &lock.Lock{Providers: []lock.Provider{p}}
}

func TestAddressReplacesTheSettingThatItBecomes(t *testing.T) {
	const file = "providers: [{name: vault, settings: {url: 'https://old:8200', role: web}}]"
	toNew := []string{"CA_ADDR=vault://new:8200"}
	for _, test := range []struct {
		environ      []string
		flags        []Assignment
		address, url string
	}{
		{nil, nil, "", "https://old:8200"},
		{toNew, nil, "new:8200", ""},
		{toNew, []Assignment{flag("providers.vault.settings.url", "https://flag")}, "", "https://flag"},
		{toNew, []Assignment{flag("providers.vault.address", "flag:8200")}, "flag:8200", ""},
		{nil, []Assignment{flag("providers.vault.address", "flag:8200")}, "flag:8200", ""},
	} {
		c, err := pinned(t, file, test.environ, test.flags...)
		if err != nil {
			t.Fatal(err)
		}
		entry := c.Providers[0]
		url, _ := entry.Settings["url"].(string)
		if entry.Address != test.address || url != test.url || entry.Settings["role"] != "web" {
			t.Errorf("%v %v: got the address %q and the settings %v", test.environ, test.flags, entry.Address, entry.Settings)
		}
		if got, want := c.AddressOf(entry), cmp.Or(test.address, test.url); got != want {
			t.Errorf("AddressOf returns %q, want %q", got, want)
		}
	}
	// Without the lock file, url may be another setting: the host knows by the provider's schema.
	c, _ := mustLoad(t, file, slices.Concat(toNew, identity))
	if entry := c.Providers[0]; entry.Address != "new:8200" || entry.Settings["url"] != "https://old:8200" {
		t.Errorf("got %+v", entry)
	}
	c, _ = mustLoad(t, "providers: [{name: vault, address: a, settings: {url: 'https://lists'}}]", identity)
	if entry := c.Providers[0]; entry.Address != "a" || entry.Settings["url"] != "https://lists" {
		t.Errorf("got %+v", entry)
	}
	c, _, err := load(file, slices.Concat(toNew, identity), flag("providers.vault.settings.url", "https://flag"))
	if entry := c.Providers[0]; err != nil || entry.Address != "" || entry.Settings["url"] != "https://flag" {
		t.Errorf("got %+v, %v", entry, err)
	}
}

func TestWrongAddressStopsTheStart(t *testing.T) {
	for environ, want := range map[string]string{
		"CA_ADDR=vault://http://v:8200":                `providers.vault.address is "http://v:8200" (from CA_ADDR): write a URL, or HOST[:PORT][/PATH] for https, that matches ^https://, for the setting url`,
		"CA_ADDR=vault://http://u:geheim@v:8200":       `"http://u:xxxxx@v:8200"`,
		"CA_ADDR=vault://u:geheim%@v:8200":             `"u:xxxxx@v:8200"`,
		"CA_ADDR=http://vault:8200 CA_PROVIDER=vault":  "providers.vault.address",
		"CA_ADDR=https://vault:8200 CA_PROVIDER=vault": "",
		"CA_ADDR=vault:8200/v1 CA_PROVIDER=vault":      "",
	} {
		_, err := pinned(t, "", strings.Fields(environ))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%s: got %v, want %s", environ, err, want)
		}
	}
	_, err := pinned(t, "providers: [{name: vault, address: a, settings: {url: 'https://b'}}]", nil)
	wantError(t, err, "providers.vault.address and providers.vault.settings.url are both set: remove one of them")
}

// Each combination of what chooses a CA: CA_ADDR, CA_PROVIDER, the file, and the flag.
func TestEveryCombinationChooses(t *testing.T) {
	const (
		one = "providers: [{name: corp, provider: vault, address: file:8200}]"
		two = "providers: [{name: corp, provider: vault, address: file:8200}, {name: mesh, provider: citadel}]\ndefault_provider: corp"
		// The rules, as in the log.
		usual, only, named   = "CA_PROVIDER, CA_ADDR and providers are unset: istiod at its usual address", "it is the only configured provider", "default_provider names it"
		byAddress, byName    = "CA_ADDR begins with vault:", `CA_PROVIDER is "Vault"`
		byFlag               = "--default_provider names it"
		withAddr, withName   = "CA_ADDR=vault://env:8200", "CA_PROVIDER=Vault"
		withBoth, without    = withAddr + " " + withName, ""
		fromFile, fromEnv    = "file:8200", "env:8200"
		vault, corp, citadel = "vault", "corp", "citadel"
	)
	type want struct{ entry, rule, address string }
	refused := want{rule: "configured are citadel"} // an entry is missing
	for _, test := range []struct {
		environ, file, flag string
		want                want
	}{
		{without, "", "", want{citadel, usual, ""}},
		{withAddr, "", "", want{vault, byAddress, fromEnv}},
		{withName, "", "", want{vault, byName, ""}},
		{withBoth, "", "", want{vault, byName, fromEnv}},
		{without, one, "", want{corp, only, fromFile}},
		{withAddr, one, "", want{corp, byAddress, fromEnv}},
		{withName, one, "", want{corp, byName, fromFile}},
		{withBoth, one, "", want{corp, byName, fromEnv}},
		{without, two, "", want{corp, named, fromFile}},
		{withAddr, two, "", want{corp, byAddress, fromEnv}},
		{withName, two, "", want{corp, byName, fromFile}},
		{withBoth, two, "", want{corp, byName, fromEnv}},

		{without, "", "vault", refused},
		{withAddr, "", "vault", want{vault, byAddress, fromEnv}},
		{withName, "", "vault", want{vault, byName, ""}},
		{withBoth, "", "vault", want{vault, byName, fromEnv}},
		{without, one, "corp", want{corp, byFlag, fromFile}},
		{withAddr, one, "corp", want{corp, byAddress, fromEnv}},
		{withName, one, "corp", want{corp, byName, fromFile}},
		{withBoth, one, "corp", want{corp, byName, fromEnv}},
		{without, two, "mesh", want{"mesh", byFlag, ""}},
		{withAddr, two, "mesh", want{"mesh", byFlag, ""}},
		{withName, two, "mesh", want{"mesh", byFlag, ""}},
		{withBoth, two, "mesh", want{"mesh", byFlag, ""}},
	} {
		var flags []Assignment
		if test.flag != "" {
			flags = append(flags, flag("default_provider", test.flag))
		}
		c, _, err := load(test.file, append(strings.Fields(test.environ), identity...), flags...)
		name := fmt.Sprintf("%q with %q and --default-provider %q", test.environ, test.file, test.flag)
		if test.want == refused && err != nil && strings.Contains(err.Error(), refused.rule) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		choice := c.Choice()
		i := slices.IndexFunc(c.Providers, func(p Provider) bool { return p.Name == choice.Entry })
		if got := (want{choice.Entry, choice.Rule, c.AddressOf(c.Providers[i])}); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
