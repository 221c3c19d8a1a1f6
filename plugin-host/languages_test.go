package pluginhost_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/programs"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// language is one with a library in sdk/languages: the variable that names the folder where
// scripts/get-provider-NAME has built it with its example, acme, and the provider of
// testdata/languages, full; the folder of its interpreter; how its providers authenticate.
type language struct {
	folder, interpreter string
	authentication      pluginhost.Authentication
}

var languages = map[string]language{
	"python": {"COUNTERSIGN_PROVIDER_PYTHON", "venv/bin", pluginhost.PinnedTLS},
	"node":   {"COUNTERSIGN_PROVIDER_NODE", ".", pluginhost.Channel},
	"rust":   {"COUNTERSIGN_PROVIDER_RUST", ".", pluginhost.Channel},
}

// findInterpreters puts the interpreters on the PATH, where the host finds them.
func findInterpreters() {
	for _, language := range languages {
		if folder := os.Getenv(language.folder); folder != "" {
			_ = os.Setenv("PATH", filepath.Join(folder, language.interpreter)+":"+os.Getenv("PATH"))
		}
	}
}

// inEachLanguage runs a test with a host that finds the providers of one language.
func inEachLanguage(t *testing.T, test func(t *testing.T, h *host, l language)) {
	t.Helper()
	t.Parallel()
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			folder := programs.Foreign(t, l.folder)
			h := newHost(t)
			h.opts.Dirs = []string{folder}
			test(t, h, l)
		})
	}
}

// full is an entry with the settings that a provider of testdata/languages takes.
func full(more map[string]any) pluginhost.Entry {
	settings := map[string]any{"zone": "a", "pools": []any{"x", "y"}, "account": map[string]any{"name": "me", "password": "hunter2hunter2"}}
	maps.Copy(settings, more)
	return pluginhost.Entry{Name: "full", Settings: settings}
}

func TestForeignLanguageProviderRestartsWithItsRoot(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, l language) {
		// The library marks dir as the address.
		p := h.open(t, pluginhost.Entry{Name: "acme", Address: t.TempDir(), Settings: map[string]any{"trust_domain": "example.org"}})
		first := p.Status()
		if first.Authentication != l.authentication {
			t.Errorf("authenticated by %q", first.Authentication)
		}
		sign(t, p)
		before, err := p.Roots(t.Context())
		must(t, err)
		must(t, syscall.Kill(first.PID, syscall.SIGKILL))
		h.rec.awaitState(t, pluginhost.Ready, 2)
		sign(t, p)
		after, err := p.Roots(t.Context())
		must(t, err)
		if len(before) == 0 || !bytes.Equal(before, after) {
			t.Errorf("the roots before and after:\n%s\n%s", before, after)
		}
	})
}

func TestForeignLanguageExampleReportsErrors(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		_, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: "acme", Settings: map[string]any{"dri": "x"}})
		if err == nil || !strings.Contains(err.Error(), "dri") || !strings.Contains(err.Error(), "trust_domain") {
			t.Fatalf("%v", err)
		}
		p := h.open(t, pluginhost.Entry{Name: "acme", Settings: map[string]any{"dir": t.TempDir(), "trust_domain": "another.org"}})
		if _, err := p.CSRSign(t.Context(), request(t)); !errors.Is(err, ca.ErrDenied) {
			t.Errorf("another trust domain: %v", err)
		}
		broken := request(t)
		broken.CSR = []byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n")
		if _, err := p.CSRSign(t.Context(), broken); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("no CSR: %v", err)
		}
	})
}

func TestForeignLanguageErrorKeepsItsReason(t *testing.T) {
	const token = "a-token-that-no-text-may-have"
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		p := h.open(t, full(nil))
		for word, reason := range map[string]ca.Reason{
			"invalid": ca.Invalid, "denied": ca.Denied, "unauthenticated": ca.Unauthenticated, "rate-limited": ca.RateLimited,
			"unavailable": ca.Unavailable, "pending": ca.Pending, "aborted": ca.Aborted, "internal": ca.Internal, "unknown": ca.Unknown,
			"retry-after": ca.RateLimited, "bug": ca.Internal,
		} {
			req := request(t)
			req.SubjectID, req.Token = "spiffe://example.org/"+word, token
			_, err := p.CSRSign(t.Context(), req)
			if ca.ReasonFor(err) != reason || strings.Contains(err.Error(), token) {
				t.Errorf("%s: %v is %s", word, err, ca.ReasonFor(err))
			}
			if after := ca.RetryAfter(err); (after == 90*time.Second) != (word == "retry-after") {
				t.Errorf("%s: retry after %s", word, after)
			}
		}
		if strings.Contains(h.rec.log(), token) {
			t.Errorf("the token is in the log:\n%s", h.rec.log())
		}
	})
}

func TestForeignLanguageProviderGetsTheRequester(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		req := request(t)
		req.SubjectID, req.Requester = "spiffe://example.org/requester", "agent on machine-7"
		if _, err := h.open(t, full(nil)).CSRSign(t.Context(), req); err == nil || !strings.Contains(err.Error(), "asked by agent on machine-7") {
			t.Error(err)
		}
	})
}

func TestForeignLanguageCallIsCancelled(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		p := h.open(t, full(nil))
		ctx, cancel := context.WithCancel(t.Context())
		hangs := make(chan error, 1)
		go func() {
			req := request(t)
			req.SubjectID = "spiffe://example.org/hang"
			_, err := p.CSRSign(ctx, req)
			hangs <- err
		}()
		h.rec.await(t, "the call", func(log string, _ []pluginhost.Status) bool { return strings.Contains(log, "the call began") })
		cancel()
		if err := <-hangs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		h.rec.await(t, "its end", func(log string, _ []pluginhost.Status) bool { return strings.Contains(log, "the call was cancelled") })
	})
}

func TestForeignLanguageProviderExchangesTokensAndWatchesRoots(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		p := h.open(t, full(nil))
		token, err := p.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: "subject", Audience: "ca"})
		must(t, err)
		if token.AccessToken != "exchanged-for-ca" || time.Until(token.Expiry) < 59*time.Minute {
			t.Errorf("got %v", token)
		}
		if _, err := p.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: "stranger"}); !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), "stranger") {
			t.Error(err)
		}
		want, err := p.Roots(t.Context())
		must(t, err)
		done := errors.New("done")
		if err := p.WatchRoots(t.Context(), func(roots []byte) error {
			if !bytes.Equal(roots, want) {
				t.Errorf("watched %s", roots)
			}
			return done
		}); !errors.Is(err, done) {
			t.Error(err)
		}
	})
}

func TestForeignLanguageProviderGivesRenewalAdvice(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		p := h.open(t, full(nil))
		cert, err := p.CSRSign(t.Context(), request(t))
		must(t, err)
		leaf, _ := pem.Decode(cert.Chain)
		advice, err := p.RenewalInfo(t.Context(), pem.EncodeToMemory(leaf))
		must(t, err)
		if until := time.Until(advice.Start); until < 19*time.Minute || until > 20*time.Minute || advice.End.Sub(advice.Start) < 9*time.Minute {
			t.Errorf("the window is %s to %s", advice.Start, advice.End)
		}
		if advice.Explanation != "https://ca.example.org/why" || advice.RetryAfter != time.Hour {
			t.Errorf("got %+v", advice)
		}
	})
}

func TestForeignLanguageProviderDeclaresItsAbilities(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		m, err := probe(t, h).Metadata(t.Context())
		must(t, err)
		slices.Sort(m.Abilities)
		if want := []wire.Ability{1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(m.Abilities, want) {
			t.Errorf("abilities %v", m.Abilities)
		}
		if want := (ca.Facts{FixedLifetime: true, NameMatch: ca.MatchTrustDomain}); m.Facts != want {
			t.Errorf("facts %+v", m.Facts)
		}
	})
}

// A method that the library does not know would be left out silently: its own start is refused.
func TestForeignLanguageClassHasNoUnknownAbility(t *testing.T) {
	t.Parallel()
	node := func(methods string) []string {
		return []string{"node", "-e", "const {Service} = require('./countersign-provider/lib/service.js'); new Service('x', '1', class {sign() {} #own() {} " + methods + "});"}
	}
	python := func(methods string) []string {
		return []string{"venv/bin/python3", "-c", "from dataclasses import dataclass as d\nfrom countersign_provider.definition import define\n" +
			"class A:\n def sign(self): 0\n def _own(self): 0\n" + methods + "define('x', '1', d(type('S', (), {})), A)"}
	}
	for want, commands := range map[string][2][]string{
		"is not an ability of this library": {node("revocationLists() {}"), python(" def revocation_lists(self): 0\n")},
		"or neither":                        {node("signJwt() {}"), python(" def sign_jwt(self, r): 0\n")},
		"":                                  {node("close() {}"), python(" def close(self): 0\n")},
	} {
		for i, variable := range []string{languages["node"].folder, languages["python"].folder} {
			cmd := exec.CommandContext(t.Context(), commands[i][0], commands[i][1:]...)
			cmd.Dir = programs.Foreign(t, variable)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v %s", commands[i][0], err, out)
			}
		}
	}
}

// The crate's own tests do it for Rust, when scripts/get-provider-rust builds it.
func TestForeignLanguageLibraryHelpsWithItsCA(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs("testdata/languages")
	must(t, err)
	for variable, command := range map[string][]string{
		languages["node"].folder:   {"node", "--test", filepath.Join(here, "helpers.test.js")},
		languages["python"].folder: {"venv/bin/python3", filepath.Join(here, "helpers_test.py")},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = programs.Foreign(t, variable)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command[0], err, out)
		}
	}
}

func TestForeignLanguageProviderClosesWhatNewSettingsReplace(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		p := h.open(t, full(nil))
		must(t, p.Reload(t.Context(), full(map[string]any{"tries": 4})))
		h.rec.await(t, "the first to be closed", func(log string, _ []pluginhost.Status) bool { return strings.Contains(log, "closed zone a") })
		sign(t, p)
	})
}

func TestForeignLanguageSettingsAreChecked(t *testing.T) {
	type check struct {
		settings map[string]any
		pointer  string
		want     []string
	}
	checks := map[string]check{
		"unknown":           {map[string]any{"zoen": "a"}, "/zoen", []string{"zoen is unknown: there are ", "zone", "pools", "tries", "account"}},
		"type":              {map[string]any{"tries": "7"}, "/tries", []string{`tries is "7"`, "an integer"}},
		"not whole":         {map[string]any{"tries": 1.5}, "/tries", []string{"tries is 1.5", "an integer"}},
		"enum":              {map[string]any{"zone": "c"}, "/zone", []string{`zone is "c"`, "a, b"}},
		"in a list":         {map[string]any{"pools": []any{"x", true}}, "/pools/1", []string{"pools[1]", "a string"}},
		"missing in object": {map[string]any{"account": map[string]any{"password": "p"}}, "/account/name", []string{"account.name is missing", "name of the account"}},
		"secret":            {map[string]any{"account": map[string]any{"name": "n", "password": 31337}}, "/account/password", []string{"account.password", "a string"}},
		"by the author":     {map[string]any{"tries": 0}, "/tries", []string{"tries is 0: want 1 or more"}},
	}
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		p := probe(t, h)
		for name, c := range checks {
			found, err := p.Validate(t.Context(), c.settings)
			must(t, err)
			if len(found) != 1 || found[0].Pointer != c.pointer || strings.Contains(found[0].Summary, "31337") {
				t.Errorf("%s: %+v", name, found)
				continue
			}
			for _, part := range c.want {
				if !strings.Contains(found[0].Summary, part) {
					t.Errorf("%s: %q is not in %q", name, part, found[0].Summary)
				}
			}
		}
	})
}

func TestForeignLanguageProviderAsksItsCAOnlyOnline(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, h *host, _ language) {
		p := probe(t, h)
		away := map[string]any{"zone": "b"}
		found, err := p.Validate(t.Context(), away)
		if err != nil || len(found) > 0 {
			t.Errorf("offline: %v %v", found, err)
		}
		found, err = p.ValidateOnline(t.Context(), away)
		if err != nil || len(found) != 1 || found[0].Summary != "the CA of zone b is away" {
			t.Errorf("online: %v %v", found, err)
		}
		if found, err = p.ValidateOnline(t.Context(), nil); err != nil || len(found) > 0 {
			t.Errorf("online, zone a: %v %v", found, err)
		}
	})
}

// probe returns the provider full, started and without settings.
func probe(t *testing.T, h *host) wire.Provider {
	t.Helper()
	p, err := pluginhost.NewProbe(h.opts, pluginhost.Entry{Name: "full"})
	must(t, err)
	must(t, p.Launch())
	t.Cleanup(p.Close)
	must(t, p.Connect(t.Context()))
	return p
}
