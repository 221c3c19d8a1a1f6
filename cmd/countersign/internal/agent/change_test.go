package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// Watches, token caches and waits go on where a reload leaves the client as it is.
func TestReloadKeepsTheClientOfAnUnchangedProvider(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "countersign-provider-file"), []byte("#!/bin/false\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	read := func(folder string) config.Config {
		entry := func(name, folder string) config.Provider {
			return config.Provider{Entry: pluginhost.Entry{Name: name, Provider: "file", Settings: map[string]any{"dir": folder, "of": []any{"a", map[string]any{"b": 1.5}}}}}
		}
		return config.Config{Plugins: config.Plugins{Dev: true, ProviderDirs: []string{dir}, Providers: []config.Provider{entry("same", "ca"), entry("other", folder)}}}
	}
	p, err := findProviders(environ.Vars{}, read("one"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ch, err := p.change(read("two"))
	if err != nil {
		t.Fatal(err)
	}
	defer ch.drop() // last, as a provider that was never started answers only once it is closed
	defer p.close() //nolint:errcheck // never fails
	if same, other := ch.client("same") == p.client("same"), ch.client("other") == p.client("other"); !same || other {
		t.Errorf("the client is the same: %t for the unchanged provider, %t for the other", same, other)
	}
}
