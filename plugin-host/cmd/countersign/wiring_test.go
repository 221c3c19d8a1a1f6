package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

func TestATokenFileIsReadForEachRequestOfItsProviderAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	entry := config.Provider{Name: "citadel", Credential: config.Credential{TokenFile: file}}
	authority, err := authorityOf(entry, catest.NewCA(catest.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Token(t.Context()); ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("no file is %v", err)
	}
	for _, token := range []ca.Token{"one", "two"} {
		if err := os.WriteFile(file, []byte(token.Reveal()), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := authority.Token(t.Context()); got.Token != token || err != nil {
			t.Errorf("got another token than %q, %v", token.Reveal(), err)
		}
	}
	if other, err := authorityOf(config.Provider{Name: "file"}, nil); other.Token != nil || err != nil {
		t.Errorf("a provider without a token file has a token, %v", err)
	}
}

func TestATokenFileThatIsOptionalMayBeMissing(t *testing.T) {
	entry := config.Provider{Name: "citadel", Credential: config.Credential{TokenFile: filepath.Join(t.TempDir(), "token"), TokenOptional: true}}
	authority, err := authorityOf(entry, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token, err := authority.Token(t.Context()); token.Token != "" || err != nil {
		t.Errorf("got a token, or %v", err)
	}
}
