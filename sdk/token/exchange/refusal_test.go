package exchange_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
	"github.com/countersign-dev/countersign/sdk/token/exchange"
)

func TestEachStatusHasItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   *ca.Error
		action ca.Action
	}{
		"no such audience":  {400, `{"error":"invalid_target"}`, ca.ErrDenied, ca.EndAttempt},
		"a wrong request":   {400, `{"error":"invalid_request"}`, ca.ErrDenied, ca.EndAttempt},
		"an expired token":  {400, `{"error":"invalid_grant"}`, ca.ErrUnauthenticated, ca.RefreshToken},
		"a wrong client":    {401, `{"error":"invalid_client"}`, ca.ErrUnauthenticated, ca.RefreshToken},
		"one by 400":        {400, `{"error":"invalid_client"}`, ca.ErrUnauthenticated, ca.RefreshToken},
		"forbidden":         {403, ``, ca.ErrDenied, ca.EndAttempt},
		"no such page":      {404, `<html>`, ca.ErrDenied, ca.EndAttempt},
		"a slow request":    {408, ``, ca.ErrDeadline, ca.Wait},
		"too many requests": {429, ``, ca.ErrRateLimited, ca.Wait},
		"a fault":           {500, `{"error":"invalid_grant"}`, ca.ErrInternal, ca.Wait},
		"a bad gateway":     {502, `<html>`, ca.ErrUnavailable, ca.Wait},
		"unavailable":       {503, ``, ca.ErrUnavailable, ca.Wait},
		"a slow gateway":    {504, ``, ca.ErrDeadline, ca.Wait},
		"another success":   {204, ``, ca.ErrInternal, ca.Wait},
		"not modified":      {304, ``, ca.ErrInternal, ca.Wait},
	} {
		_, err := trade(t.Context(), serve(t, says(c.status, c.body)).client(t, nil))
		if !errors.Is(err, c.want) || ca.ActionFor(err) != c.action || !strings.Contains(err.Error(), fmt.Sprint(c.status)) || strings.HasSuffix(err.Error(), " ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerRetryAfterIsUsed(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "999999999": 24 * time.Hour, "-1": 0, "soon": 0, "99999999999999999999": 0, "": 0,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):  time.Hour,
	} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		_, err := trade(t.Context(), server.client(t, nil))
		if got := ca.RetryAfter(err); got > want || got < want-time.Minute {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusForbidden)
	})
	if _, err := trade(t.Context(), server.client(t, nil)); ca.RetryAfter(err) != 0 {
		t.Errorf("a no that is final is to be asked again: %v", err)
	}
}

func TestRefusalShowsServerTextWithoutCredential(t *testing.T) {
	const secret, actor = "a-very/secret+word", "the-actors-own-token-is-long"
	file := write(t, filepath.Join(t.TempDir(), "secret"), secret)
	for name, echo := range map[string]func(*http.Request) string{
		"the token":           func(*http.Request) string { return subject },
		"a piece of it":       func(*http.Request) string { return subject[10:40] },
		"the beginning of it": func(*http.Request) string { return subject[:30] },
		"the actor's":         func(*http.Request) string { return actor },
		"the secret":          func(*http.Request) string { return secret },
		"the header":          func(r *http.Request) string { return r.Header.Get("Authorization") },
		"the form":            func(r *http.Request) string { return r.PostForm.Encode() },
	} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			said := echo(r)
			says(http.StatusBadRequest, fmt.Sprintf(`{"error":"invalid_request","error_description":"not \u001b[2J good: %s"}`, said))(w, r)
		})
		_, err := trade(t.Context(), server.client(t, func(c *exchange.Config) {
			c.Actor = token.Static{Value: actor}
			c.Auth = exchange.Auth{ClientID: "agent", SecretFile: file}
		}))
		text := err.Error()
		if !strings.Contains(text, `invalid_request: not \x1b[2J good: `) || !strings.Contains(text, "(secret)") {
			t.Errorf("%s: %s", name, text)
		}
		for _, never := range []string{subject[10:30], actor, secret, base64.StdEncoding.EncodeToString([]byte("agent:a-very"))[:14], "%2F"} {
			if strings.Contains(text, never) {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

func TestFormEncodedCredentialIsHidden(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "secret"), "very/secret+word") // too short to recognize a piece of it
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		says(http.StatusBadRequest, fmt.Sprintf(`{"error":"invalid_request","error_description":%q}`, r.PostForm.Encode()))(w, r)
	})
	_, err := trade(t.Context(), server.client(t, func(c *exchange.Config) {
		c.Auth = exchange.Auth{ClientID: "agent", SecretFile: file, SecretInBody: true}
	}))
	if text := err.Error(); !strings.Contains(text, "client_secret=(secret)") || strings.Contains(text, "very") {
		t.Error(text)
	}
}

func TestLongRefusalIsCut(t *testing.T) {
	server := serve(t, says(http.StatusForbidden, `{"error":"`+strings.Repeat("e", 5000)+`","error_description":"`+strings.Repeat("d", 5000)+`"}`))
	if _, err := trade(t.Context(), server.client(t, nil)); len(err.Error()) > 700 {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

func TestNonStandardReplyIsRefused(t *testing.T) {
	reply := func(change string) string {
		key, value, _ := strings.Cut(change, "=")
		fields := map[string]string{"access_token": `"given"`, "issued_token_type": `"urn:x"`, "token_type": `"bearer"`, "expires_in": "60"}
		fields[key] = value
		var out []string
		for key, value := range fields {
			if value != "" {
				out = append(out, fmt.Sprintf("%q:%s", key, value))
			}
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	for body, want := range map[string]string{
		``: "something else", `<html>given</html>`: "something else", `{"access_token":"given"`: "something else", good + good: "something else",
		`[]`: "something else", `null`: "without an access_token", reply("access_token="): "without an access_token",
		reply(`access_token=7`): "something else", reply(`access_token="given\nx"`): "cannot stand in a header",
		reply(`access_token="` + strings.Repeat("x", 65537) + `"`): "too long",
		reply("token_type="): "token_type", reply(`token_type="DPoP"`): "token_type", reply("issued_token_type="): "without an issued_token_type",
		reply("expires_in=-9223372037"): "expires_in", reply(`issued_token_type="` + strings.Repeat("x", 257) + `"`): "not a URI",
		reply(`issued_token_type="a b"`): "not a URI", reply("expires_in=0"): "expires_in", reply("expires_in=-5"): "expires_in",
		reply("expires_in=1e3"): "expires_in", reply("expires_in=31536001"): "expires_in", reply("expires_in=99999999999999999999"): "expires_in",
		reply(`expires_in="soon"`): "something else", strings.Repeat(" ", 300<<10) + good: "more than 262144 bytes",
	} {
		got, err := trade(t.Context(), serve(t, says(http.StatusOK, body)).client(t, nil))
		if !errors.Is(err, ca.ErrInternal) || got.AccessToken != "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "given") {
			t.Errorf("%.80s: %v", body, err)
		}
	}
	for _, body := range []string{reply("x=1"), reply("expires_in="), reply(`token_type="N_A"`), reply(`expires_in="60"`)} {
		if got, err := trade(t.Context(), serve(t, says(http.StatusOK, body)).client(t, nil)); got.AccessToken != "given" || got.Expiry.IsZero() == strings.Contains(body, "expires_in") || err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestTokenIsNotSentToRedirectTarget(t *testing.T) {
	elsewhere := serve(t, says(http.StatusOK, good))
	to := func(code int, target string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/there" {
				says(http.StatusOK, good)(w, r)
				return
			}
			w.Header().Set("Location", strings.ReplaceAll(target, "HOST", r.Host))
			w.WriteHeader(code)
		}
	}
	for name, c := range map[string]struct {
		code   int
		target string
		says   string
	}{
		"another host":      {307, elsewhere.URL + "/there?" + subject, "another server"},
		"another host, 302": {302, elsewhere.URL, "another server"},
		"plaintext":         {308, "http://HOST/there", "another scheme"},
		"a lost request":    {302, "/there", "drops the request"},
		"round in circles":  {307, "/token", "more than 3 times"},
	} {
		_, err := trade(t.Context(), serve(t, to(c.code, c.target)).client(t, nil))
		if !errors.Is(err, ca.ErrDenied) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), subject[:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, calls := elsewhere.asked(); calls != 0 {
		t.Error("another server was asked")
	}
	// What parses it quotes it.
	if _, err := trade(t.Context(), serve(t, to(307, "https://%zz/"+subject)).client(t, nil)); !errors.Is(err, ca.ErrUnavailable) || strings.Contains(err.Error(), subject[:20]) {
		t.Errorf("an invalid location: %v", err)
	}
	server := serve(t, to(http.StatusTemporaryRedirect, "/there"))
	got, err := trade(t.Context(), server.client(t, nil))
	if form, _, calls := server.asked(); err != nil || got.AccessToken != "given" || calls != 2 || form.Get("subject_token") != subject {
		t.Errorf("within the server: %d calls, %v", calls, err)
	}
}
