package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

type typedSettings struct {
	URL      setting.URL              `json:"url" jsonschema:"where the CA is"`
	Plain    *setting.URL             `json:"plain,omitempty" schemes:"http,https"`
	Timeout  time.Duration            `json:"timeout" default:"20s"`
	Longest  *time.Duration           `json:"longest,omitempty"`
	Waits    map[string]time.Duration `json:"waits,omitempty"`
	Steps    []time.Duration          `json:"steps,omitempty"`
	Limit    setting.Size             `json:"limit" default:"10MiB"`
	Hook     setting.URL              `json:"hook,omitzero" secret:"true"`
	File     setting.File             `json:"file,omitempty"`
	Roots    setting.Certificates     `json:"roots,omitzero"`
	Upstream struct {
		setting.TLS
		Grace time.Duration `json:"grace" default:"1m"`
	} `json:"upstream,omitzero"`
	Pair setting.KeyPair `json:"pair,omitzero"`
	setting.TLS
}

// typed reads settings and returns what was read.
func typed(t *testing.T, settings map[string]any) (got typedSettings, err error) {
	t.Helper()
	if settings["url"] == nil {
		settings["url"] = "https://ca.example:8443/acme"
	}
	_, err = provider.Define("typed", "1", func(_ context.Context, s typedSettings) (*catest.CA, error) {
		got = s
		return catest.NewCA(catest.Options{}), nil
	}).Open(t.Context(), settings)
	return got, err
}

func TestTypedSettingsAreRead(t *testing.T) {
	got, err := typed(t, map[string]any{
		"plain": "http://127.0.0.1", "longest": "24h", "waits": map[string]any{"a": "1s"}, "steps": []string{"1m", "0"}, "limit": 512,
		"hook": "https://hook.example", "file": "/etc/x", "roots": "/etc/roots.pem", "root_file": "SYSTEM",
		"upstream": map[string]any{"server_name": "x"}, "pair": map[string]any{"cert_file": "c", "key_file": "k"},
	})
	must(t, err)
	for i, same := range []bool{
		got.URL.JoinPath("sign").String() == "https://ca.example:8443/acme/sign", got.Plain.Host == "127.0.0.1", got.Timeout == 20*time.Second,
		*got.Longest == 24*time.Hour, got.Waits["a"] == time.Second, got.Steps[0] == time.Minute && got.Steps[1] == 0, got.Limit == 512, got.Hook.Host == "hook.example",
		got.File == "/etc/x", got.Roots == "/etc/roots.pem", got.RootFile == "SYSTEM", got.Upstream.ServerName == "x", got.Upstream.Grace == time.Minute, got.Pair.KeyFile == "k",
	} {
		if !same {
			t.Errorf("%d: got %+v", i, got)
		}
	}
	if got, err := typed(t, map[string]any{"file": "", "roots": "", "plain": "", "hook": "", "longest": "", "limit": "64KiB", "timeout": ""}); err != nil ||
		got.File != "" || got.Plain != nil || got.Longest != nil || got.Timeout != 20*time.Second {
		t.Errorf("empty texts: got %+v, %v", got, err)
	}
	if got, err := typed(t, map[string]any{"limit": "64KiB"}); err != nil || got.Limit != 64<<10 || got.Upstream.Grace != time.Minute || got.Roots != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWrongTypedSettingIsNamedWithWhatIsAllowed(t *testing.T) {
	const duration = "it takes a duration, 0 or more with a unit, such as 90s, 30m or 24h"
	for _, test := range []struct {
		name  string
		value any
		says  string
	}{
		{"timeout", "soon", `the setting timeout is "soon": ` + duration},
		{"timeout", "-1s", `the setting timeout is "-1s": ` + duration},
		{"timeout", 20, "the setting timeout is a number: write text, in quotes"},
		{"longest", "300000000h", "the setting longest is \"300000000h\": " + duration},
		{"waits", map[string]any{"a": "x"}, `the setting waits.a is "x": ` + duration},
		{"steps", []any{"1s", "x"}, `the setting steps[1] is "x": ` + duration},
		{"upstream", map[string]any{"grace": "x"}, `the setting upstream.grace is "x": ` + duration},
		{"limit", "10 MB", `the setting limit is "10 MB": it takes a number of bytes, or one with a unit, such as 64KiB, 10MiB or 1GiB`},
		{"limit", -1, "it takes a number of bytes"}, {"limit", 1.5, "it takes a number of bytes"}, {"limit", "9999999999Gi", "it takes a number of bytes"}, {"limit", true, "the setting limit is true or false: write text"}, {"limit", []int{1}, "is a list"}, {"limit", map[string]any{}, "is an object"},
		{"url", "ca.example", `the setting url is "ca.example": it takes https://host[:port][/path]`},
		{"url", "http://ca.example", "it takes https://host[:port][/path]"}, {"url", "https://", "it takes https://"}, {"url", "https:ca", "it takes https://"},
		{"url", "https://ca/?a=b", "it takes https://"}, {"url", "https://ca/#a", "it takes https://"}, {"url", "", "it takes https://"},
		{"url", "https://me:sesame@ca", "it takes a URL without a user: use the settings for credentials"},
		{"url", "https://me:sesame@ca/%zz", "it takes a URL"}, {"url", "https://sesame@ca\x01", "it takes a URL"},
		{"plain", "ftp://ca", "it takes http:// or https://host[:port][/path]"},
		{"hook", "sesame", "the setting hook is another: it takes https://"},
		{"file", "a\x00b", "it takes the path of a file"},
		{"roots", "-----BEGIN sesame", "it takes certificates in PEM or the path of a file: PEM block 1 at line 1 is malformed: its END line is missing or damaged"},
		{"client_cert_file", "c", `the settings client_cert_file is "c" and client_key_file is "": set both or neither`},
		{"upstream", map[string]any{"client_key_file": "k"}, `the setting upstream: client_cert_file is "" and client_key_file is "k": set both or neither`},
		{"pair", map[string]any{"cert_file": "c"}, `the setting pair: cert_file is "c" and key_file is "": set both or neither`},
	} {
		_, err := typed(t, map[string]any{test.name: test.value})
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), test.says) || test.name != "roots" && strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s = %v: got %v, want %q", test.name, test.value, err, test.says)
		}
	}
}

func TestSchemaDescribesTypes(t *testing.T) {
	m, err := provider.Define("typed", "1", func(context.Context, typedSettings) (*catest.CA, error) { return nil, nil }).Provider().Metadata(t.Context())
	must(t, err)
	var schema struct {
		Required   []string
		Properties map[string]map[string]any
	}
	must(t, json.Unmarshal([]byte(m.SettingsSchema), &schema))
	for name, want := range map[string]map[string]any{
		"url": {"type": "string", "format": "uri", "description": "where the CA is"}, "timeout": {"type": "string", "default": "20s"},
		"limit": {"type": []any{"string", "integer"}, "default": "10MiB"}, "hook": {"writeOnly": true}, "longest": {"type": []any{"null", "string"}},
		"client_cert_file": {"type": "string"}, "roots": {"type": "string"}, "plain": {"pattern": "^(http|https)://[^/?#@]+(/[^?#]*)?$"},
	} {
		for keyword, value := range want {
			if got := schema.Properties[name][keyword]; !reflect.DeepEqual(got, value) {
				t.Errorf("%s: %s is %v, want %v", name, keyword, got, value)
			}
		}
		if examples, ok := schema.Properties[name]["examples"].([]any); !ok && name != "client_cert_file" || ok && len(examples) == 0 {
			t.Errorf("%s has no example", name)
		}
	}
	if !reflect.DeepEqual(schema.Required, []string{"url"}) {
		t.Errorf("required are %q", schema.Required)
	}
}

func TestDefaultOfWrongTypeIsRefused(t *testing.T) {
	type wrong struct {
		Timeout time.Duration `json:"timeout" default:"20"`
	}
	if _, err := provider.Define("x", "1", func(context.Context, wrong) (*catest.CA, error) { return nil, nil }).Provider().Metadata(t.Context()); err == nil || !strings.Contains(err.Error(), "the default of timeout") {
		t.Errorf("got %v", err)
	}
}

func TestFileAndCertificatesAreReadForEachUse(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	path := filepath.Join(t.TempDir(), "roots.pem")
	inline, err := typed(t, map[string]any{"roots": string(authority.Bundle().PEM()), "file": path})
	must(t, err)
	if certs, err := inline.Roots.Read(); err != nil || len(certs) != 1 {
		t.Errorf("got %d, %v", len(certs), err)
	}
	got, err := typed(t, map[string]any{"roots": path})
	must(t, err)
	if _, err := got.Roots.Read(); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
	changed, stop := inline.File.Watch()
	defer stop()
	must(t, os.WriteFile(path, authority.Bundle().PEM(), 0o600))
	select {
	case <-changed:
	case <-time.After(2 * time.Minute):
		t.Error("a change sent no notice")
	}
	if certs, err := got.Roots.Read(); err != nil || len(certs) != 1 {
		t.Errorf("got %d, %v", len(certs), err)
	}
}
