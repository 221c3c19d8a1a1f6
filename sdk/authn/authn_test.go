package authn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bearer = ca.Token("eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJpc3Rpby1jYSJ9.c2lnbmF0dXJl")

func TestCredentialHidesItsToken(t *testing.T) {
	c := authn.Credential{Token: bearer, Cluster: "east\nwest"}
	var log bytes.Buffer
	text := slog.New(slog.NewTextHandler(&log, nil))
	text.Info("x", "credential", c)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "credential", &c)
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(asJSON), c.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%o", "%t", "%08.3f"} { // fmt calls no method for %p; go vet refuses it
		for _, value := range []any{c, &c, []authn.Credential{c}, map[string]authn.Credential{"c": c}, struct{ C authn.Credential }{c}} {
			shown = append(shown, fmt.Sprintf(verb, value))
		}
	}
	for _, text := range shown {
		for _, part := range []string{bearer.Reveal()[:20], fmt.Sprintf("%x", bearer.Reveal()[:20]), fmt.Sprintf("%X", bearer.Reveal()[:20])} {
			if strings.Contains(text, part) {
				t.Errorf("shown: %s", text)
			}
		}
	}
	if !strings.Contains(log.String(), `token \"(set)\", 0 certificates`) {
		t.Errorf("the log does not mention the token: %s", log.String())
	}
}

// answers is an authenticator with one answer.
type answers struct {
	id  authn.Identity
	err error
}

func (a answers) Authenticate(context.Context, authn.Credential) (authn.Identity, error) {
	return a.id, a.err
}

func TestFirstMatchingAuthenticatorWins(t *testing.T) {
	web := authn.Identity{SPIFFEID: "spiffe://example.org/web"}
	api := authn.Identity{Namespace: "shop", ServiceAccount: "api"}
	notMine, refused := answers{err: authn.ErrNotMine}, answers{err: authn.Errorf(authn.ErrRefused, "expired")}
	for name, test := range map[string]struct {
		asked []answers
		want  authn.Identity
	}{
		"the first of two":        {[]answers{{id: web}, {id: api}}, web},
		"after one not asked":     {[]answers{notMine, {id: api}, {id: web}}, api},
		"after one that refuses":  {[]answers{refused, {id: web}}, web},
		"after one without names": {[]answers{{}, {id: web}}, web},
	} {
		var list authn.Ordered
		for i, a := range test.asked {
			list = append(list, authn.Named{Name: fmt.Sprint(i), Authenticator: a})
		}
		if got, err := list.Authenticate(t.Context(), authn.Credential{}); err != nil || got != test.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestOutcomeDecidesWhetherToRetry(t *testing.T) {
	notMine, refused, unavailable := authn.ErrNotMine, authn.Errorf(authn.ErrRefused, "expired"), authn.Errorf(authn.ErrUnavailable, "down")
	for name, test := range map[string]struct {
		said []error
		want error
	}{
		"no authenticator":             {nil, authn.ErrNotMine},
		"nothing was shown":            {[]error{notMine, notMine}, authn.ErrNotMine},
		"one refuses":                  {[]error{notMine, refused, notMine}, authn.ErrRefused},
		"an error without outcome":     {[]error{errors.New("odd"), notMine}, authn.ErrRefused},
		"one is away, another refuses": {[]error{unavailable, refused}, authn.ErrUnavailable},
		"one refuses, another is away": {[]error{refused, unavailable}, authn.ErrUnavailable},
		"an answer without a name":     {[]error{nil}, authn.ErrRefused},
	} {
		var list authn.Ordered
		for i, err := range test.said {
			list = append(list, authn.Named{Name: fmt.Sprint(i), Authenticator: answers{err: err}})
		}
		_, err := list.Authenticate(t.Context(), authn.Credential{})
		for _, outcome := range []error{authn.ErrNotMine, authn.ErrRefused, authn.ErrUnavailable} {
			if errors.Is(err, outcome) != errors.Is(test.want, outcome) {
				t.Errorf("%s: errors.Is(%v) is %v", name, outcome, errors.Is(err, outcome))
			}
		}
	}
}

func TestCallerSeesOneSentenceAndLogSeesReasons(t *testing.T) {
	list := authn.Ordered{
		{Name: "certificate", Authenticator: answers{err: authn.Errorf(authn.ErrRefused, "the trust domain is unknown")}},
		{Name: "jwt", Authenticator: answers{err: fmt.Errorf("bad token %s\nforged line", bearer.Reveal())}},
		{Name: "long", Authenticator: answers{err: errors.New(strings.Repeat("x", 5000))}},
	}
	_, err := list.Authenticate(t.Context(), authn.Credential{Token: bearer})
	if got := fmt.Errorf("stream: %w", err).Error(); got != "stream: the caller could not be authenticated" {
		t.Errorf("the caller sees %q", got)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("refused", "why", err)
	line := log.String()
	for _, want := range []string{"why.certificate=", "the trust domain is unknown", "why.jwt=", "bad token (secret)", "why.long=xxx"} {
		if !strings.Contains(line, want) {
			t.Errorf("the log lacks %q: %s", want, line)
		}
	}
	if strings.Contains(line, bearer.Reveal()[:20]) || strings.Count(line, "\n") != 1 || len(line) > 1000 {
		t.Errorf("the log has %d bytes: %s", len(line), line)
	}
}

func TestNamedClusterChoosesAuthenticator(t *testing.T) {
	east := authn.Identity{Namespace: "shop", ServiceAccount: "web", Cluster: "east"}
	clusters := authn.Clusters(func(name string) authn.Authenticator {
		if name == "east" || name == "" {
			return answers{id: east}
		}
		return nil
	})
	for _, name := range []string{"east", ""} {
		if got, err := clusters.Authenticate(t.Context(), authn.Credential{Token: bearer, Cluster: name}); err != nil || got != east {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := clusters.Authenticate(t.Context(), authn.Credential{Token: bearer, Cluster: "west"}); !errors.Is(err, authn.ErrRefused) || !strings.Contains(err.Error(), `"west"`) {
		t.Errorf("an unknown cluster: %v", err)
	}
	if _, err := clusters.Authenticate(t.Context(), authn.Credential{Cluster: "west"}); !errors.Is(err, authn.ErrNotMine) {
		t.Errorf("without a token: %v", err)
	}
}
