package token_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

// jwtWith returns a JWT with those claims and no signature worth the name.
func jwtWith(claims string) ca.Token {
	return ca.Token("eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl")
}

func jwtUntil(end time.Time) ca.Token { return jwtWith(fmt.Sprintf(`{"exp":%d}`, end.Unix())) }

func TestExpiryIsReadFromJWTsOnly(t *testing.T) {
	for claims, want := range map[string]time.Time{
		`{"exp":1700000000}`: time.Unix(1700000000, 0), `{"exp":1.7e9}`: time.Unix(1700000000, 0),
		`{"exp":1700000000.5}`: time.Unix(1700000000, 5e8), `{"sub":"x"}`: {}, `{"exp":"1700000000"}`: {}, `{"exp":-1}`: {},
		`{"exp":1e30}`: {}, `{"exp":null}`: {}, `[]`: {}, `{"exp":`: {}, ``: {},
	} {
		if got := token.Expiry(jwtWith(claims)); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", claims, got, want)
		}
	}
	for _, text := range []ca.Token{"", "opaque", "a.b", "a.!.c", "ya29.a0Af.x.y", jwtWith(`{"exp":1700000000}`) + ".more"} {
		if got := token.Expiry(text); !got.IsZero() {
			t.Errorf("%q: %s", text.Reveal(), got)
		}
	}
}

func FuzzExpiry(f *testing.F) {
	f.Add(jwtWith(`{"exp":1700000000}`).Reveal())
	f.Fuzz(func(t *testing.T, text string) {
		if got := token.Expiry(ca.Token(text)); got.Year() > 9999 {
			t.Errorf("%q ends at %s, which cannot be written", text, got)
		}
	})
}

func TestNextSourceReplacesFailedOrExpiredOne(t *testing.T) {
	now := time.Unix(1700000000, 0)
	expired := token.File{Path: filepath.Join(t.TempDir(), "token")}
	write(t, expired.Path, jwtUntil(now).Reveal())
	missing := token.File{Path: "/none"}
	var log strings.Builder
	for name, c := range map[string]struct {
		sources []token.Source
		want    ca.Token
		says    []string
	}{
		"the first":    {[]token.Source{token.Static{Value: "one"}, token.Static{Value: "two"}}, "one", nil},
		"one failed":   {[]token.Source{missing, token.Static{Value: "two"}}, "two", nil},
		"one expired":  {[]token.Source{expired, token.Static{Value: "two"}}, "two", nil},
		"one needless": {[]token.Source{token.File{Path: "/none", Optional: true}, token.Static{Value: "two"}}, "two", nil},
		"all needless": {[]token.Source{token.File{Path: "/none", Optional: true}}, "", nil},
		"all dry":      {[]token.Source{missing, expired}, "", []string{"/none", expired.Path, "expired at 2023-11-14T22:13:20Z"}},
		"none":         {nil, "", []string{"no source"}},
	} {
		ordered := token.Ordered{Sources: c.sources, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil))}
		got, err := ordered.Token(t.Context())
		if got.Token != c.want || (err != nil) != (c.says != nil) || err != nil && !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("%s: %q, %v", name, got.Token.Reveal(), err)
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "eyJ") {
				t.Errorf("%s: %v, want %s", name, err, text)
			}
		}
	}
	if !strings.Contains(log.String(), "skipped") || strings.Contains(log.String(), "eyJ") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestEnvironmentVariableIsASource(t *testing.T) {
	values := map[string]string{"TOKEN": " " + jwt + "\n", "EMPTY": "", "LONG": strings.Repeat("x", 1<<17)}
	lookup := func(name string) (string, bool) { value, ok := values[name]; return value, ok }
	if got, err := (token.Env{Name: "TOKEN", Lookup: lookup}).Token(t.Context()); got.Token != jwt || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for name, says := range map[string]string{"EMPTY": "EMPTY is empty", "NONE": "NONE is not set", "LONG": "more than 65536 bytes"} {
		if _, err := (token.Env{Name: name, Lookup: lookup}).Token(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
