package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/plugin-host/lock"
)

func TestMalformedReferenceStopsTheStartWhereLockMarksIt(t *testing.T) {
	const file = "providers: [{name: citadel, settings: {password: {file: a, env: geheim}, login: {key: {command: [show, geheim]}}, other: {file: a, env: b}}}]\n"
	c, _, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Environ: identity})
	if err == nil {
		err = c.Pin("countersign.lock", locks(lock.Provider{Name: "citadel", SHA256: strings.Repeat("0", 64), SecretSettings: []string{"/password", "/login/key"}}))
	}
	if err != nil {
		t.Fatal(err)
	}
	err = c.Complete()
	wantError(t, err, "providers.citadel.settings.password: has 2 entries: write the text itself, or {file: PATH}")
	wantError(t, err, `providers.citadel.settings.login.key: command begins with "show": write the program's absolute path`)
	if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "other") {
		t.Errorf("got %v", err)
	}
	mustLoad(t, "dev: true\n"+file, identity) // only the running provider reports it
}

// The program's environment does not change: an agent would wait forever.
func TestUnsetVariableStopsTheStart(t *testing.T) {
	const file = "providers: [{name: citadel, token: {env: TOKEN}, settings: {password: {env: PASSWORD}, other: {env: OTHER}}}]\n"
	complete := func(environ ...string) error {
		c, _, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Environ: append(environ, identity...)})
		if err == nil {
			err = c.Pin("countersign.lock", locks(lock.Provider{Name: "citadel", SHA256: pin, SecretSettings: []string{"/password"}}))
		}
		if err != nil {
			t.Fatal(err)
		}
		return c.Complete()
	}
	for _, err := range []error{complete(), complete("PASSWORD=", "TOKEN=\n")} {
		wantError(t, err, "providers.citadel.settings.password: variable PASSWORD: it is not set in the program's environment, or empty")
		wantError(t, err, `providers.citadel.token.env is "TOKEN": this variable is not set in the program's environment, or empty`)
	}
	if err := complete("PASSWORD=x", "TOKEN=y"); err != nil {
		t.Error(err)
	}
}

func TestVariablesOfSecretsAreKnown(t *testing.T) {
	c, _ := mustLoad(t, `
dev: true
providers:
  - name: citadel
    settings: {password: {env: PASSWORD}, list: [{env: LISTED}], deep: {er: {env: DEEP}}, none: {env: A, file: b}}
    token: {sources: [{env: FIRST}]}
  - name: other
    settings: {password: {env: PASSWORD}}
    token: {env: SECOND}
default_provider: other
`, append([]string{"SECOND=x"}, identity...))
	if got, want := c.SecretVariables(), []string{"DEEP", "FIRST", "LISTED", "PASSWORD", "SECOND"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
