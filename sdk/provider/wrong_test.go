package provider_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

type (
	wrongNumber struct {
		TTL int `json:"ttl" default:"24h"`
	}
	wrongDuration struct {
		TTL time.Duration `json:"ttl" default:"1 day"`
	}
	wrongBelow struct {
		Login struct {
			Tries bool `json:"tries" default:"3"`
		} `json:"login"`
	}
	wrongChoice struct {
		Modes []string `json:"modes" default:"[\"fast\",\"faster\"]" enum:"fast,slow"`
	}
	wrongAddress struct {
		URL string `json:"url" address:"uri"`
	}
	secretAddress struct {
		URL string `json:"url" address:"url" secret:"true"`
	}
)

// wronglyDefined are providers whose definition is wrong.
var wronglyDefined = map[string]*provider.Definition{
	`the default of ttl is "24h", which is not of type int`:                           definedWith[wrongNumber]("wrong"),
	`the default of ttl is "1 day", which is not of type time.Duration`:               definedWith[wrongDuration]("wrong"),
	`the default of tries is "3", which is not of type bool`:                          definedWith[wrongBelow]("wrong"),
	`the tag address of url is "uri": write one of ["host:port" "path" "url" "text"]`: definedWith[wrongAddress]("wrong"),
	`url has the tags address and secret: an address is shown`:                        definedWith[secretAddress]("wrong"),
	`the default of modes is "faster", which is not in its enum fast,slow`:            definedWith[wrongChoice]("wrong"),
	`the provider calls itself "My CA", a name is 1 to 63 of a-z, 0-9 and -, not`:     definedWith[struct{}]("My CA"),
}

func definedWith[S any](name string) *provider.Definition {
	return provider.Define(name, "1", func(context.Context, S) (*catest.CA, error) { return catest.NewCA(catest.Options{}), nil })
}

// An author learns of it in the first test.
func TestWrongDefinitionDoesNotOpen(t *testing.T) {
	for want, wrong := range wronglyDefined {
		if _, err := wrong.Open(t.Context(), map[string]any{"ttl": 1, "modes": []any{"slow"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

const (
	asWrong   = "COUNTERSIGN_TEST_AS_WRONG_PROVIDER"
	asWrongBy = "COUNTERSIGN_TEST_COOKIE" // a host's; empty: by hand
)

// Or at the first start, by hand or by a host.
func TestWrongDefinitionIsNotServed(t *testing.T) {
	if want := os.Getenv(asWrong); want != "" {
		t.Setenv(wire.MagicCookieKey, os.Getenv(asWrongBy))
		wronglyDefined[want].Serve()
	}
	proctest.NeedsProcess(t)
	for want := range wronglyDefined {
		for _, cookie := range []string{"", wire.MagicCookieValue} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWrongDefinitionIsNotServed$")
			cmd.Env = append(os.Environ(), asWrong+"="+want, asWrongBy+"="+cookie, wire.EnvVersions+"=1", wire.EnvSocketDir+"="+t.TempDir())
			if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), "cannot be served: ") || !strings.Contains(string(said), want) || strings.Contains(string(said), "|grpc") {
				t.Errorf("%v\n%s\nwant %s", err, said, want)
			}
		}
	}
}

// signerWithRoots is an interface that shows one more ability.
type signerWithRoots interface {
	ca.Client
	ca.RootSource
}

// justSigning has no further ability.
type justSigning struct{ ca.Client }

func TestInterfaceShowsAbilitiesOrIsRefused(t *testing.T) {
	made := catest.NewCA(catest.Options{})
	hidden := provider.Define("test", "1", func(context.Context, struct{}) (ca.Client, error) { return made, nil })
	const sentence = `open returns an interface, which hides that *catest.CA has the ability "root-source": have it return *catest.CA`
	if _, err := hidden.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), sentence) {
		t.Errorf("got %v", err)
	}
	partly := provider.Define("test", "1", func(context.Context, struct{}) (signerWithRoots, error) { return made, nil })
	if _, err := partly.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `"root-watcher"`) {
		t.Errorf("got %v", err)
	}
	plain := provider.Define("test", "1", func(context.Context, struct{}) (ca.Client, error) { return justSigning{made}, nil })
	if _, err := plain.Open(t.Context(), nil); err != nil {
		t.Error(err)
	}
	m, err := partly.Provider().Metadata(t.Context())
	var names []string
	for _, ability := range m.Abilities {
		names = append(names, ability.String())
	}
	if err != nil || !slices.Equal(names, []string{"certificate-authority", "root-source"}) {
		t.Errorf("abilities %q, %v", names, err)
	}
}
