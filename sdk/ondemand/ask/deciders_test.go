package ask_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

func newURL(t *testing.T, config ask.URLConfig) *ask.URL {
	t.Helper()
	u, err := ask.NewURL(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func TestStatusOfURLIsTheAnswer(t *testing.T) {
	var status int
	var query, path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, path = r.URL.RawQuery, r.Method+" "+r.URL.Path
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
	}))
	defer server.Close()
	u := newURL(t, ask.URLConfig{URL: server.URL + "/allowed?key=a%20b#part"})
	for status = range 600 {
		var want, fails bool
		var reason ca.Reason
		switch {
		case status < 200, status == 304: // the server's library sends no such final status
			continue
		case status < 300:
			want = true
		case status == 429:
			fails, reason = true, ca.RateLimited
		case status < 400, status == 408, status >= 500:
			fails, reason = true, ca.Unavailable
		}
		got, err := u.Allowed(t.Context(), "a.example.org")
		if got != want || (err != nil) != fails || fails && (ca.ReasonFor(err) != reason || ca.RetryAfter(err) != 7*time.Second) {
			t.Errorf("status %d: %v, %v", status, got, err)
		}
		if query != "key=a%20b&domain=a.example.org" || path != "GET /allowed" {
			t.Fatalf("asked %s with %s", path, query)
		}
	}
}

func TestBodyOfReplyIsNotRead(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-gone
		case "/slow":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-gone
		case "/flood":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		case "/reset":
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	defer close(gone)
	for path, c := range map[string]struct {
		want   bool
		reason ca.Reason
	}{"/hang": {false, ca.Deadline}, "/slow": {true, 0}, "/flood": {true, 0}, "/reset": {false, ca.Unavailable}} {
		config := ask.URLConfig{URL: server.URL + path, Timeout: time.Minute}
		if c.reason == ca.Deadline {
			config.Timeout = time.Second
		}
		u := newURL(t, config)
		if got, err := u.Allowed(t.Context(), "a.example.org"); got != c.want || (err != nil) == c.want || err != nil && ca.ReasonFor(err) != c.reason {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	server.CloseClientConnections()
	u := newURL(t, ask.URLConfig{URL: "http://127.0.0.1:1/allowed"})
	if got, err := u.Allowed(t.Context(), "a.example.org"); got || ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("without a server: %v, %v", got, err)
	}
}

// A proxy of the environment would see the names, and could answer.
func TestURLIsAskedWithoutProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	writeRoots(t, roots, server)
	u := newURL(t, ask.URLConfig{URL: server.URL, RootFile: roots})
	if got, err := u.Allowed(t.Context(), "a.example.org"); !got || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	stranger := newURL(t, ask.URLConfig{URL: server.URL})
	if got, err := stranger.Allowed(t.Context(), "a.example.org"); got || ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("of a server that is not verified: %v, %v", got, err)
	}
}

func TestURLThatCannotBeTrustedIsRefused(t *testing.T) {
	for address, says := range map[string]string{
		"": "invalid URL", "http://ask.example.org/": "not https", "https://user:geheim@example.org/": "a user in it", "ftp://127.0.0.1/": "not https", "https://": "invalid URL",
	} {
		if _, err := ask.NewURL(ask.URLConfig{URL: address}); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestNameThatIsNotFoldedIsNeverSent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s", r.URL) }))
	defer server.Close()
	u := newURL(t, ask.URLConfig{URL: server.URL})
	for _, name := range []string{"", "a&b=c", "A.example.org", "a.example.org.", "--help", "a\x00", "a b", strings.Repeat("a", 64)} {
		if got, err := u.Allowed(t.Context(), name); got || ca.ReasonFor(err) != ca.Invalid {
			t.Errorf("%q: %v, %v", name, got, err)
		}
		if got, err := (ask.Command{Args: []string{"/no/such"}}).Allowed(t.Context(), name); got || ca.ReasonFor(err) != ca.Invalid {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}

func TestExitCodeOfCommandIsTheAnswer(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // there is no shell
	}
	c := ask.Command{Args: []string{"/bin/sh", "-c", `echo "out of memory" >&2; case "$1" in yes.*) exit 0;; no.*) exit 1;; kill.*) kill -9 $$;; slow.*) sleep 1000;; env.*) [ -z "$HOME$COUNTERSIGN_TEST" ];; *) exit 2;; esac`, "sh"}, Timeout: time.Minute}
	t.Setenv("COUNTERSIGN_TEST", "set")
	for name, want := range map[string]struct {
		allowed bool
		reason  ca.Reason // zero: none
		says    string
	}{
		"yes.example.org": {true, 0, ""}, "no.example.org": {false, 0, ""}, "env.example.org": {true, 0, ""},
		"other.example.org": {false, ca.Unavailable, "out of memory"}, "kill.example.org": {false, ca.Unavailable, "killed"},
		"slow.example.org": {false, ca.Deadline, "killed"},
	} {
		ended := c
		if want.reason == ca.Deadline {
			ended.Timeout = time.Second
		}
		got, err := ended.Allowed(t.Context(), name)
		if got != want.allowed || (err != nil) != (want.says != "") || err != nil && (ca.ReasonFor(err) != want.reason || !strings.Contains(err.Error(), want.says)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, args := range [][]string{nil, {"/no/such/program"}} {
		if got, err := (ask.Command{Args: args}).Allowed(t.Context(), "a.example.org"); got || ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("%v: %v, %v", args, got, err)
		}
	}
}

func TestNameBeyondUnreadableListIsUncertain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.txt")
	if err := os.WriteFile(path, []byte("a.example.org\n*.shop.example.org\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() ask.List {
		p, err := names.Open(names.Config{File: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return ask.List{Names: p}
	}
	check := func(l ask.List, name string, want, fails bool) {
		t.Helper()
		if got, err := l.Allowed(context.Background(), name); got != want || (err != nil) != fails || fails && ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	l := open()
	check(l, "a.example.org", true, false)
	check(l, "b.shop.example.org", true, false)
	check(l, "b.example.org", false, false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check(open(), "a.example.org", false, true)
	for end := time.Now().Add(time.Minute); l.Names.Err() == nil && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	check(l, "a.example.org", true, false)
	check(l, "b.example.org", false, true)
}

func writeRoots(t *testing.T, path string, server *httptest.Server) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
