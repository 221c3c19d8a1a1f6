package proxy

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLocalitySources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string { return map[string]string{"SOME_ZONE": "from-variable"}[name] }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/google":
			if r.Header.Get("Metadata-Flavor") == "Google" {
				w.Write([]byte("projects/12/zones/eu-1"))
			}
		case "/azure":
			w.Write([]byte(" 2 "))
		case "/long":
			w.Write([]byte(strings.Repeat("x", maxLocality+1)))
		case "/elsewhere":
			http.Redirect(w, r, "/azure", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			http.Error(w, "no", http.StatusNotFound)
		}
	}))
	defer server.Close()
	flavor := map[string]string{"Metadata-Flavor": "Google"}
	for _, test := range []struct {
		from        Locality
		want, wrong string
	}{
		{Locality{Value: "region/zone/subzone"}, "region/zone/subzone", ""},
		{Locality{Variable: "SOME_ZONE", Getenv: getenv}, "from-variable", ""},
		{Locality{Variable: "NO_SUCH_ZONE", Getenv: getenv}, "", "invalid locality"},
		{Locality{File: file}, "from-file", ""},
		{Locality{File: file + "2"}, "", "no such file"},
		{Locality{URL: server.URL + "/google", Headers: flavor}, "eu-1", ""},
		{Locality{URL: server.URL + "/google"}, "", "invalid locality"},
		{Locality{URL: server.URL + "/azure"}, "2", ""},
		{Locality{URL: server.URL + "/long"}, "", "more than 256 bytes"},
		{Locality{URL: server.URL + "/elsewhere"}, "", "status 302"},
		{Locality{URL: server.URL + "/none"}, "", "status 404"},
		{Locality{URL: server.URL + "/slow", Timeout: 50 * time.Millisecond}, "", "deadline"},
		{Locality{Value: "--flag"}, "", "invalid locality"},
		{Locality{Value: "a b"}, "", "invalid locality"},
	} {
		if test.from.Timeout == 0 {
			test.from.Timeout = patience
		}
		got, err := test.from.find(t.Context())
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%+v: got %q, %v", test.from, got, err)
		}
	}
}

func TestProxyEnvironmentOmitsAgentVariables(t *testing.T) {
	p := &Proxy{locality: "eu-1", cfg: Config{
		Environ: []string{
			"OTEL_EXPORTER_OTLP_HEADERS=api-key=sesame", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=api-key=sesame",
			"PATH=/bin", "COUNTERSIGN_SOCKET=x", "CA_HEADER_KEY=x", "PLUGIN_CLIENT_CERT=x", "VAULT_TOKEN=x", "token=x",
			"NOTIFY_SOCKET=x", "WATCHDOG_USEC=x", "LISTEN_FDS=1", "AWS_WEB_IDENTITY_TOKEN_FILE=/t", "B=agent", "nonsense", "PASSWORD=x",
		},
		Withheld: []string{"PASSWORD", "B"},
		Env:      map[string]string{"B": "proxy", "ZONE": "z={locality}", "AWS_SESSION_TOKEN": "wanted"},
	}}
	want := []string{"AWS_SESSION_TOKEN=wanted", "AWS_WEB_IDENTITY_TOKEN_FILE=/t", "B=proxy", "PATH=/bin", "ZONE=z=eu-1"}
	if got := p.environment(); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
