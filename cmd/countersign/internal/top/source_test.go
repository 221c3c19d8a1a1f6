package top

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// serve returns the address of a status page.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func mustSource(t *testing.T, address string) *source {
	t.Helper()
	s, err := newSource(address)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryStatusPageIsRead(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "localhost" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, `{"secrets":[{"name":"default"}],"authorities":[{"name":"vault","waiting":3}]}`)
	})
	server := httptest.NewUnstartedServer(mux) // as the registration authority's
	server.Listener = listener
	server.Start()
	defer server.Close()
	s := mustSource(t, "unix:"+socket)
	for range 2 {
		if a := s.ask(t.Context()); a.err != nil || a.report.Secrets[0].Name != "default" || a.report.Authorities[0].Waiting != 3 {
			t.Fatalf("got %+v", a)
		}
	}
}

func TestBadAnswersAreErrors(t *testing.T) {
	for want, handler := range map[string]http.HandlerFunc{
		"more than":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxReply+10)) },
		"cannot be read": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"secrets":7}`) },
		"answers 500":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"has no status":  http.NotFound,
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		},
	} {
		if a := mustSource(t, serve(t, handler)).ask(t.Context()); a.err == nil || a.raw != nil || !strings.Contains(a.err.Error(), want) {
			t.Errorf("%s: got %v", want, a.err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := mustSource(t, "127.0.0.1:1").ask(ctx); a.err == nil {
		t.Error("nobody answered")
	}
}

func TestWrongAddressesAreRefused(t *testing.T) {
	for _, address := range []string{"", "host", "http://a:1", "a:1/x", "user@a:1", "a:"} {
		if _, err := newSource(address); err == nil {
			t.Errorf("%q was taken", address)
		}
	}
}

func TestOnceIsPrintedWholeAndFailsForAbsentAgent(t *testing.T) {
	well := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"secrets":[{"name":"\u009b2J"}]}`) })
	sources := []*source{mustSource(t, well), mustSource(t, serve(t, http.NotFound))}
	var out bytes.Buffer
	if err := once(t.Context(), &out, sources, false, ""); err == nil || !strings.Contains(out.String(), `\u009b2J`) {
		t.Errorf("%v\n%s", err, &out)
	}
	out.Reset()
	if err := once(t.Context(), &out, sources, true, ""); err == nil {
		t.Error("an agent was away")
	}
	var got []struct{ Address, Error string }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 2 || got[0].Address != well || got[1].Error == "" {
		t.Errorf("%v\n%s", err, &out)
	}
	if strings.Contains(out.String(), "\u009b") {
		t.Error("a control character was printed")
	}
	if err := once(t.Context(), &out, sources[:1], false, ""); err != nil {
		t.Error(err)
	}
}
