package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

func TestTokenFileChangeRetriesProvider(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	write := func(target, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, target), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target string) { // as kubelet replaces a projected token
		t.Helper()
		if err := os.Symlink(filepath.Join(dir, target), path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	other := config.Provider{Entry: pluginhost.Entry{Name: "other"}, Token: config.Token{TokenSource: config.TokenSource{Env: "X"}}}
	files := newTokenFiles(config.Config{Plugins: config.Plugins{Providers: []config.Provider{fileToken(path, false), other}}})
	write("one", "one")
	write("two", "two")
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"nothing", func() {}, nil},
		{"it appears", func() { link("one") }, []string{"citadel"}},
		{"nothing more", func() {}, nil},
		{"another file", func() { link("two") }, []string{"citadel"}},
		{"other content", func() { write("two", "longer") }, []string{"citadel"}},
		{"it is gone", func() { os.Remove(path) }, nil},
		{"it is back", func() { link("two") }, []string{"citadel"}},
	} {
		step.do()
		if got := files.changed(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	files.take(config.Config{Plugins: config.Plugins{Providers: []config.Provider{other}}})
	write("two", "a third content")
	if got := files.changed(); got != nil {
		t.Errorf("the file is unused after a reload, and %q got a notice", got)
	}
}

func TestTokenFileWatchEnds(t *testing.T) {
	entry := fileToken(filepath.Join(t.TempDir(), "token"), false)
	told := make(chan string)
	stop := newTokenFiles(config.Config{Plugins: config.Plugins{Providers: []config.Provider{entry}}}).watch(time.Millisecond, func(name string) { told <- name })
	if err := os.WriteFile(entry.Token.File, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-told:
		if name != "citadel" {
			t.Errorf("a notice for %q", name)
		}
	case <-time.After(2 * time.Minute):
		t.Error("no notice was sent")
	}
	go func() {
		for range told { // a second look may have seen another size
		}
	}()
	stop()
	close(told)
}

func fileToken(path string, optional bool) config.Provider {
	return config.Provider{Entry: pluginhost.Entry{Name: "citadel"}, Token: config.Token{TokenSource: config.TokenSource{File: path, Optional: optional}}}
}

func TestProviderIsRetriedWhenClientCertificateChanges(t *testing.T) {
	for _, setting := range []string{"client_cert_file", "client_key_file"} {
		path := filepath.Join(t.TempDir(), "client.pem")
		entry := config.Provider{Entry: pluginhost.Entry{Name: "citadel", Settings: map[string]any{setting: path}}}
		files := newTokenFiles(config.Config{Plugins: config.Plugins{Providers: []config.Provider{entry}}})
		if got := files.changed(); len(got) != 0 {
			t.Errorf("%s: a notice for %v", setting, got)
		}
		for _, content := range []string{"certificate", "its successor"} {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := files.changed(); !slices.Equal(got, []string{"citadel"}) {
				t.Errorf("%s: a notice for %v", setting, got)
			}
			if got := files.changed(); len(got) != 0 {
				t.Errorf("%s: a second notice for %v", setting, got)
			}
		}
	}
}
