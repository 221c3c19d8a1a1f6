package wiring

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

var silent = slog.New(slog.DiscardHandler)

func fileToken(path string, optional bool) config.Provider {
	return config.Provider{Entry: pluginhost.Entry{Name: "citadel"}, Token: config.Token{TokenSource: config.TokenSource{File: path, Optional: optional}}}
}

func TestTokenFileIsReadPerRequestOfItsProvider(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	authority, err := Authority(fileToken(file, false), nil, NewTokenCache(nil, silent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Token(t.Context()); ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("with no file: %v, want unavailable", err)
	}
	for _, token := range []ca.Token{"one", "two"} {
		if err := os.WriteFile(file, []byte(token.Reveal()), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := authority.Token(t.Context()); got.Token != token || err != nil {
			t.Errorf("got another token than %q, %v", token.Reveal(), err)
		}
	}
	if other, err := Authority(config.Provider{Entry: pluginhost.Entry{Name: "file"}}, nil, NewTokenCache(nil, silent)); other.Token != nil || err != nil {
		t.Errorf("a provider without a token file has a token, %v", err)
	}
}

func TestOptionalTokenFileCanBeMissing(t *testing.T) {
	authority, err := Authority(fileToken(filepath.Join(t.TempDir(), "token"), true), nil, NewTokenCache(nil, silent))
	if err != nil {
		t.Fatal(err)
	}
	if token, err := authority.Token(t.Context()); token.Token != "" || err != nil {
		t.Errorf("got a token, or %v", err)
	}
}
