package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// guarded is an authority that needs a password, which its errors quote.
type guarded struct {
	ca.Client
	password string
}

func (g guarded) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	return ca.Certificate{}, provider.Errorf(provider.Denied, "not with %q", g.password)
}

type guardedSettings struct {
	Password string `json:"password" secret:"true"`
	Name     string `json:"name,omitempty"`
}

func (s guardedSettings) Validate() error {
	if strings.HasPrefix(s.Password, "wrong") {
		return fmt.Errorf("the password %s is wrong", s.Password)
	}
	return nil
}

// newGuarded runs such an authority with these settings; opened gets each password.
func newGuarded(t *testing.T, opts pluginhost.Options, settings map[string]any) (p *pluginhost.Provider, opened chan string, states chan pluginhost.Status) {
	t.Helper()
	opened, states = make(chan string, 100), make(chan pluginhost.Status, 100)
	opts.OnState = func(s pluginhost.Status) { states <- s }
	define := provider.Define("guarded", "1", func(_ context.Context, s guardedSettings) (guarded, error) {
		if strings.HasPrefix(s.Password, "refused") {
			return guarded{}, provider.Errorf(provider.Invalid, "the CA refuses %s", s.Password)
		}
		opened <- s.Password
		return guarded{password: s.Password}, nil
	})
	p, err := pluginhost.InProcess(t.Context(), opts, pluginhost.Entry{Name: "guarded", Settings: settings}, define.Provider)
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p, opened, states
}

// next waits for what a channel brings.
func next[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func keep(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(content), 0o600))
	must(t, os.Rename(path+".new", path))
}

func quoted(t *testing.T, p *pluginhost.Provider) string {
	t.Helper()
	_, err := p.CSRSign(t.Context(), ca.SignRequest{})
	if !errors.Is(err, ca.ErrDenied) {
		t.Fatalf("got %v", err)
	}
	return err.Error()
}

func TestSecretIsReadByReferenceAndChangesWithItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	keep(t, path, "sesame-1\n")
	p, opened, states := newGuarded(t, pluginhost.Options{}, map[string]any{"password": map[string]any{"file": path}})
	if got := next(t, opened, "the first password"); got != "sesame-1" {
		t.Errorf("got %q", got)
	}
	for len(states) > 0 {
		<-states
	}
	keep(t, path, "sesame-2\n")
	if got := next(t, opened, "the second password"); got != "sesame-2" {
		t.Errorf("got %q", got)
	}
	if s := next(t, states, "news of it"); s.State != pluginhost.Ready || s.Generation != 1 {
		t.Errorf("got %+v", s)
	}
	if said := quoted(t, p); strings.Contains(said, "sesame") || !strings.Contains(said, `not with "(secret)"`) {
		t.Errorf("the error shows the secret: %s", said)
	}
}

func TestRefusedOrMissingSecretKeepsPreviousOne(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	path := filepath.Join(t.TempDir(), "password")
	keep(t, path, "sesame-1")
	var log logtest.Log
	p, opened, _ := newGuarded(t, pluginhost.Options{Log: log.Logger()}, map[string]any{"password": map[string]any{"file": path}})
	next(t, opened, "the first password")
	for i, content := range []string{"refused-sesame", "wrong-sesame", ""} {
		keep(t, path, content)
		log.Await(t, patience, content, func(text string) bool {
			if content == "" {
				return strings.Contains(text, "cannot read a secret setting, keeping its last value")
			}
			return strings.Count(text, "provider refused a changed secret") == i+1
		})
	}
	if said := quoted(t, p); strings.Contains(said, "sesame") {
		t.Errorf("the secret in use is shown: %s", said)
	}
	keep(t, path, "sesame-2")
	if got := next(t, opened, "the password after those"); got != "sesame-2" {
		t.Errorf("got %q", got)
	}
	if strings.Contains(log.String(), "sesame") {
		t.Errorf("the log shows a secret: %s", log.String())
	}
}

func TestFlappingSecretConfiguresOnceASecond(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	path := filepath.Join(t.TempDir(), "password")
	keep(t, path, "sesame-0")
	_, opened, _ := newGuarded(t, pluginhost.Options{}, map[string]any{"password": map[string]any{"file": path}})
	next(t, opened, "the first password")
	began := time.Now() // before the second: how late the test sees it does not count
	keep(t, path, "sesame-1")
	next(t, opened, "the second password")
	keep(t, path, "sesame-2")
	next(t, opened, "the third password")
	if gap := time.Since(began); gap < 800*time.Millisecond {
		t.Errorf("configured again after %s", gap)
	}
}

func TestProviderWaitsForItsSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	p, opened, _ := newGuarded(t, pluginhost.Options{}, map[string]any{"password": map[string]any{"file": path}})
	for deadline := time.Now().Add(patience); ; {
		s := p.Status()
		if s.State == pluginhost.Configuring && strings.Contains(s.LastError, "settings: password: file "+path) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %+v", s)
		}
		time.Sleep(time.Millisecond)
	}
	keep(t, path, "sesame")
	if got := next(t, opened, "the password"); got != "sesame" {
		t.Errorf("got %q", got)
	}
}

func TestVariableIsLookedUpByHostOnly(t *testing.T) {
	lookup := func(name string) (string, bool) { return "sesame of " + name, true }
	_, opened, _ := newGuarded(t, pluginhost.Options{LookupEnv: lookup}, map[string]any{"password": map[string]any{"env": "NAME"}})
	if got := next(t, opened, "the password"); got != "sesame of NAME" {
		t.Errorf("got %q", got)
	}
}

func TestMalformedReferenceRefusesSettings(t *testing.T) {
	define := provider.Define("guarded", "1", func(context.Context, guardedSettings) (guarded, error) { return guarded{}, nil })
	for says, settings := range map[string]map[string]any{
		`password: has "fiel"`:           {"password": map[string]any{"fiel": "/x"}},
		"the password (secret) is wrong": {"password": "wrong-sesame"},
		"setting name is":                {"password": "x", "name": map[string]any{"file": "/x"}},
	} {
		_, err := pluginhost.InProcess(t.Context(), pluginhost.Options{}, pluginhost.Entry{Name: "guarded", Settings: settings}, define.Provider)
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestSecretInPlainTextIsWarnedAbout(t *testing.T) {
	var log logtest.Log
	_, opened, _ := newGuarded(t, pluginhost.Options{Log: log.Logger()}, map[string]any{"password": "sesame"})
	next(t, opened, "the password")
	if text := log.String(); !strings.Contains(text, "secret setting in plain text") || !strings.Contains(text, "setting=password") || strings.Contains(text, "sesame") {
		t.Errorf("the log is %s", text)
	}
}
