package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// described has every tag that a setting can have.
type described struct {
	Address  string   `json:"address" jsonschema:"where the CA is"`
	Protocol string   `json:"protocol,omitempty" jsonschema:"what it speaks" default:"cas" enum:"cas,meshca"`
	Uses     []string `json:"uses,omitempty" enum:"server,client"`
	TTL      string   `json:"ttl" jsonschema:"how long" default:"24h"`
	Tries    int      `json:"tries" default:"3"`
	Password string   `json:"password,omitempty" secret:"true"`
	Mode     string   `json:"mode,omitempty" enum:"a,b" secret:"true"`
	TLS      struct {
		Verify bool   `json:"verify" default:"true"`
		Name   string `json:"name,omitempty"`
	} `json:"tls,omitzero"`
	Pools []struct {
		ID   string `json:"id"`
		Size int    `json:"size" default:"5"`
	} `json:"pools,omitempty"`
}

func (d described) Validate() []provider.Diagnostic {
	if d.Address == "both" {
		return []provider.Diagnostic{
			{Summary: "the address is odd", Warning: true, Pointer: "/address"},
			{Summary: "the address is \"both\"", Detail: "name one", Pointer: "/address"},
		}
	}
	if d.Address == "odd" {
		return []provider.Diagnostic{{Summary: "the address is odd", Warning: true, Pointer: "/address"}}
	}
	return nil
}

func (d described) ValidateOnline(context.Context) error {
	if d.Address == "away" {
		return errors.Join(errors.New("no server is there"), provider.Unavailable(errors.New("nor here")))
	}
	if d.Address == "down" {
		return fmt.Errorf("ask the CA: %w", provider.Unavailable(errors.New("maintenance")))
	}
	if d.Address == "refused" {
		return fmt.Errorf("ask the CA: %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
	}
	if d.Address == "forbidden" {
		return errors.Join(provider.Denied(errors.New("this role may not sign")))
	}
	return nil
}

func define(got *described) *provider.Definition {
	return provider.Define("test", "1", func(_ context.Context, d described) (ca.Client, error) {
		*got = d
		return nil, nil
	})
}

func TestSchemaFollowsTags(t *testing.T) {
	metadata, err := define(new(described)).Provider().Metadata(t.Context())
	must(t, err)
	var schema struct {
		Required   []string
		Properties map[string]map[string]any
	}
	must(t, json.Unmarshal([]byte(metadata.SettingsSchema), &schema))
	if want := []string{"address"}; !reflect.DeepEqual(schema.Required, want) {
		t.Errorf("required are %q, want %q", schema.Required, want)
	}
	for name, want := range map[string]map[string]any{
		"address":  {"description": "where the CA is"},
		"protocol": {"default": "cas", "enum": []any{"cas", "meshca"}, "description": "what it speaks"},
		"ttl":      {"default": "24h"},
		"tries":    {"default": float64(3)},
		"password": {"writeOnly": true, "x-secret": true},
	} {
		for key, value := range want {
			if got := schema.Properties[name][key]; !reflect.DeepEqual(got, value) {
				t.Errorf("%s of %s is %v, want %v", key, name, got, value)
			}
		}
	}
	pools, _ := json.Marshal(schema.Properties["pools"])
	if uses, _ := json.Marshal(schema.Properties["uses"]); !strings.Contains(string(uses), `"enum":["server","client"]`) || !strings.Contains(string(pools), `"default":5`) {
		t.Errorf("uses is %s, pools is %s", uses, pools)
	}
}

func TestNestedDefaultsAreFilledIn(t *testing.T) {
	var got described
	definition := define(&got)
	if _, err := definition.Open(t.Context(), map[string]any{"address": "ca", "pools": []any{map[string]any{"id": "x"}}, "tries": 0}); err != nil {
		t.Fatal(err)
	}
	if got.Protocol != "cas" || got.TTL != "24h" || got.Tries != 0 || !got.TLS.Verify || got.Pools[0].Size != 5 {
		t.Errorf("got %+v", got)
	}
	if _, err := definition.Open(t.Context(), map[string]any{"address": "ca", "tls": map[string]any{"verify": false}, "tries": nil}); err != nil {
		t.Fatal(err)
	}
	if got.TLS.Verify || got.Tries != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestInvalidDefaultIsAuthorsFault(t *testing.T) {
	type wrong struct {
		Tries int `json:"tries" default:"many"`
	}
	definition := provider.Define("test", "1", func(context.Context, wrong) (ca.Client, error) { return nil, nil })
	if _, err := definition.Provider().Metadata(t.Context()); err == nil || !strings.Contains(err.Error(), "the default of tries") {
		t.Errorf("got %v", err)
	}
}

func TestEveryFaultIsADiagnosticWithPointer(t *testing.T) {
	p := define(new(described)).Provider()
	for name, c := range map[string]struct {
		settings map[string]any
		want     []string // pointer and a piece of the summary
	}{
		"missing":      {nil, []string{"/address the setting address is not set"}},
		"two at once":  {map[string]any{"zzz": 1, "protocol": "csa"}, []string{"/zzz there is no setting zzz", "/address is not set", `/protocol is "csa": it takes cas or meshca`}},
		"in a list":    {map[string]any{"address": "x", "uses": []any{"server", "sever"}}, []string{`/uses is "sever"`}},
		"nested":       {map[string]any{"address": "x", "pools": []any{map[string]any{"a/b": 1}}}, []string{"/pools/0/a~1b there is no setting pools[0].a/b", "/pools/0/id is not set"}},
		"a secret one": {map[string]any{"address": "x", "mode": "hidden"}, []string{"/mode is another: it takes a or b"}},
		"object":       {map[string]any{"address": map[string]any{"file": "x"}}, []string{"/address the setting address is an object: it takes a string"}},
		"list":         {map[string]any{"address": []any{"x"}}, []string{"/address the setting address is a list: it takes a string"}},
		"wrong type":   {map[string]any{"address": "x", "tls": map[string]any{"name": 1}}, []string{"/tls/name the setting tls.name is a number"}},
		"its own":      {map[string]any{"address": "both"}, []string{"/address is odd", `/address is "both"`}},
	} {
		found, err := p.Validate(t.Context(), c.settings)
		if err != nil || len(found) != len(c.want) {
			t.Errorf("%s: %+v, %v", name, found, err)
			continue
		}
		for i, want := range c.want {
			pointer, piece, _ := strings.Cut(want, " ")
			if found[i].Pointer != pointer || !strings.Contains(found[i].Summary, piece) {
				t.Errorf("%s: %+v, want %s", name, found[i], want)
			}
		}
		if err := p.Configure(t.Context(), c.settings); !errors.Is(err, ca.ErrInvalid) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: configure: %v", name, err)
		}
	}
	if err := p.Configure(t.Context(), map[string]any{"address": "odd"}); err != nil {
		t.Errorf("a warning became an error: %v", err)
	}
}

func TestAuthorityIsAskedOnlyWithGoodSettings(t *testing.T) {
	p := define(new(described)).Provider()
	for address, want := range map[string]string{"here": "", "away": "no server is there|nor here", "odd": "the address is odd", "both": `the address is odd|the address is "both"`} {
		found, err := p.ValidateOnline(t.Context(), map[string]any{"address": address})
		var got []string
		for _, d := range found {
			got = append(got, d.Summary)
		}
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
	none := provider.Define("test", "1", open).Provider()
	if found, err := none.ValidateOnline(t.Context(), nil); !errors.Is(err, ca.ErrUnimplemented) || len(found) > 0 {
		t.Errorf("a provider without such a check: %v, %v", found, err)
	}
	if found, err := none.ValidateOnline(t.Context(), map[string]any{"zzz": 1}); err != nil || !wire.HasErrors(found) {
		t.Errorf("with wrong settings: %v, %v", found, err)
	}
}

// An authority that is down cannot judge the settings.
func TestUnreachableAuthorityReportsNoWrongSetting(t *testing.T) {
	p := define(new(described)).Provider()
	for address, want := range map[string]error{"down": ca.ErrUnavailable, "refused": ca.ErrUnavailable, "forbidden": ca.ErrDenied} {
		found, err := p.ValidateOnline(t.Context(), map[string]any{"address": address})
		if !errors.Is(err, want) || len(found) > 0 {
			t.Errorf("%s: %v, %v", address, found, err)
		}
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.ValidateOnline(late, map[string]any{"address": "away"}); !errors.Is(err, context.Canceled) {
		t.Errorf("too late: %v", err)
	}
}

func TestErrorIsClassifiedByWrapper(t *testing.T) {
	cause := errors.New("no entry")
	for want, err := range map[error]error{
		ca.ErrInvalid: provider.Invalid(cause), ca.ErrDenied: provider.Denied(cause), ca.ErrUnauthenticated: provider.Unauthenticated(cause),
		ca.ErrRateLimited: provider.RetryAfter(time.Minute, cause), ca.ErrUnavailable: provider.RetryAfter(time.Minute, provider.Unavailable(cause)),
		ca.ErrAborted: provider.Aborted(cause), ca.ErrInternal: provider.Errorf(provider.Internal, "asked, and: %w", cause),
	} {
		if !errors.Is(err, want) || !errors.Is(err, cause) || strings.Count(err.Error(), ca.ReasonFor(want).String()) != 1 {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	twice := provider.Denied(provider.RetryAfter(time.Minute, provider.RateLimited(cause)))
	if ca.ReasonFor(twice) != ca.Denied || ca.RetryAfter(twice) != time.Minute || twice.Error() != "denied: no entry" {
		t.Errorf("got %v, retry after %s", twice, ca.RetryAfter(twice))
	}
	if provider.Denied(nil) != nil || provider.RetryAfter(1, nil) != nil {
		t.Error("nil does not stay nil")
	}
}
