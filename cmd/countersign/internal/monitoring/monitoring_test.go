package monitoring

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape returns what the handler answers.
func scrape(t *testing.T, h http.Handler, header ...string) (code int, body string) {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", "application/openmetrics-text")
	r.Header.Set("Accept-Encoding", "gzip")
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// program serves its metrics as it likes.
func program(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// says replies with a text of that type.
func says(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}
}

// counted returns a registry with one metric.
func counted() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "own_total", Help: "Own."}))
	return r
}

func TestOtherProgramsMetricsFollowAsTheyAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	envoy := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		says("text/plain; charset=UTF-8", "of_envoy{path=\""+r.URL.Path+"\"} 1")(w, r)
	})}}
	envoy.Start()
	defer envoy.Close()
	app := program(t, says("text/plain; version=0.0.4", "# TYPE of_app counter\nof_app 2\n"))
	code, body := scrape(t, Merged(counted(), []string{"unix:" + path, app}, slog.New(slog.DiscardHandler)))
	if want := "of_envoy{path=\"/stats/prometheus\"} 1\n# TYPE of_app counter\nof_app 2\n"; code != 200 || !strings.HasSuffix(body, want) || !strings.Contains(body, "own_total 0\n") {
		t.Errorf("%d:\n%s", code, body)
	}
	if !strings.Contains(body, fmt.Sprintf("countersign_metrics_from_failures_total{source=%q} 0\n", app)) {
		t.Errorf("no failures are counted:\n%s", body)
	}
}

// ofProcess returns a registry with what each program in Go has.
func ofProcess() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func TestMetricsOfAgentAndOfApplicationHaveDifferentNames(t *testing.T) {
	app := program(t, promhttp.HandlerFor(ofProcess(), promhttp.HandlerOpts{}).ServeHTTP)
	for name, sources := range map[string][]string{"merged": {app}, "alone": nil} {
		_, body := scrape(t, Merged(ofProcess(), sources, slog.New(slog.DiscardHandler)))
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(body)) // refuses what comes twice
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for family, want := range map[string]bool{
			"go_goroutines": true, "process_start_time_seconds": true,
			"countersign_agent_go_goroutines": sources != nil, "countersign_agent_process_start_time_seconds": sources != nil,
		} {
			if families[family] != nil != want {
				t.Errorf("%s: %s is there: %t", name, family, !want)
			}
		}
	}
}

func TestFailingProgramIsLeftOutAndCounted(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, h := range map[string]http.HandlerFunc{
		"in another format": says("application/openmetrics-text", "lie 1\n# EOF\n"),
		"is a page":         says("text/html", "<html>lie"),
		"fails":             func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "lie 1", http.StatusInternalServerError) },
		"redirects":         func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/lie", http.StatusFound) },
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			says("text/plain", "lie 1\n")(w, nil)
		},
		"floods": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			for line := []byte(strings.Repeat("lie 1\n", 10000)); ; {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		},
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "hangs" {
				t.Skip("waits in real time")
			}
			where := program(t, h)
			code, body := scrape(t, Merged(counted(), []string{where}, slog.New(slog.DiscardHandler)))
			if code != 200 || strings.Contains(body, "lie") || !strings.Contains(body, "own_total 0\n") ||
				!strings.Contains(body, fmt.Sprintf("countersign_metrics_from_failures_total{source=%q} 1\n", where)) {
				t.Errorf("%d:\n%.2000s", code, body)
			}
		})
	}
}

func TestTooManyScrapesAreRefused(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	h := Merged(counted(), []string{program(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		says("text/plain", "a 1\n")(w, r)
	})}, slog.New(slog.DiscardHandler))
	codes := make(chan int, maxScrapes)
	for range maxScrapes {
		go func() { code, _ := scrape(t, h); codes <- code }()
		<-asked
	}
	if code, _ := scrape(t, h); code != http.StatusServiceUnavailable {
		t.Errorf("one more gets %d", code)
	}
	close(release)
	for range maxScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a scrape gets %d", code)
		}
	}
}

func TestTokenIsDemanded(t *testing.T) {
	const token = "a-token-of-a-scraper"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := Guarded(file, says("text/plain", "in"))
	for header, want := range map[string]int{
		"Authorization: Bearer " + token: 200, "Authorization: bearer " + token: 200, "Authorization: Bearer x": 401, "Authorization: Bearer ": 401,
		"Authorization: Basic " + token: 401, "Authorization: " + token: 401, "X: y": 401,
	} {
		if code, body := scrape(t, h, header); code != want || strings.Contains(body, token) {
			t.Errorf("%q gets %d, %q", header, code, body)
		}
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{"Authorization: Bearer ", "Authorization: Bearer " + token} {
		if code, _ := scrape(t, h, header); code != http.StatusServiceUnavailable {
			t.Errorf("with an empty file, %q gets %d", header, code)
		}
	}
	if code, _ := scrape(t, Guarded("", says("text/plain", "in"))); code != http.StatusOK {
		t.Errorf("without a token file it gets %d", code)
	}
}

func TestNoHandshakeSucceedsBeforeThereIsACertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	certificate := &operatorpage.Certificate{}
	address := proctest.FreeAddress(t)
	page, err := Listen(address, certificate, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	client := server.Client()
	client.Transport.(*http.Transport).DisableKeepAlives = true
	get := func() error {
		resp, err := client.Get("https://" + address + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := get(); err == nil {
		t.Error("it serves without a certificate")
	}
	certificate.Take(&tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS13})
	if err := get(); err != nil {
		t.Error(err)
	}
}
