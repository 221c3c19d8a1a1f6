package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// open is Open with a log for the test.
func open(t *testing.T) (*Exporter, *logtest.Log, error) {
	t.Helper()
	log := &logtest.Log{}
	e, err := Open(t.Context(), Options{Service: "countersign-agent", Version: "1.2.3", Getenv: os.Getenv, Log: log.Logger()})
	return e, log, err
}

// exporting is an exporter to that endpoint.
func exporting(t *testing.T, protocol, endpoint string) (*Exporter, *logtest.Log) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	e, log, err := open(t)
	if err != nil {
		t.Fatal(err)
	}
	return e, log
}

// span begins a span and ends it.
func (e *Exporter) span(name string) {
	_, span := trace.Begin(context.Background(), e.Tracer(), name)
	span.End(nil)
}

// flushed closes e when all has arrived: Close alone gives a busy machine 2 seconds.
func (e *Exporter) flushed(t *testing.T) {
	t.Helper()
	if err := e.provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	e.Close()
}

// collector takes what is sent. It decodes nothing: names stand in a
// message as they are.
type collector struct {
	mu   sync.Mutex
	took bytes.Buffer
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.take(r.URL.Path, r.Header.Get("Api-Key"), body)
}

func (c *collector) take(where, key string, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(&c.took, "%s %s %s", where, key, body)
}

func (c *collector) has(t *testing.T, words ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, word := range words {
		if !strings.Contains(c.took.String(), word) {
			t.Errorf("the collector has no %q: %q", word, c.took.String())
		}
	}
}

func TestNothingIsExportedUnlessAsked(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_HEADERS": "sesame"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "True"},
	} {
		e, err := Open(t.Context(), Options{Getenv: func(name string) string { return env[name] }})
		if e != nil || err != nil || e.Tracer() != nil {
			t.Errorf("%v: %v, %v", env, e, err)
		}
		e.Close()
	}
}

func TestSpansArrive(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=open%20sesame")
	for _, protocol := range []string{"", "http/protobuf"} {
		got := &collector{}
		server := httptest.NewServer(got)
		defer server.Close()
		e, log := exporting(t, protocol, server.URL)
		e.span("certificate.issue")
		e.flushed(t)
		got.has(t, "certificate.issue", "countersign-agent", "1.2.3", "open sesame", "/v1/traces")
		if strings.Contains(log.String(), "level=WARN") || strings.Contains(log.String(), "sesame") || !strings.Contains(log.String(), "exporting traces") {
			t.Errorf("%s", log)
		}
	}
}

// The operator of a collector that takes gRPC learns what to change.
func TestProtocolGRPCIsRefusedWithTheOneToUse(t *testing.T) {
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "grpc://collector:4317"} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", name: value}
		_, err := Open(t.Context(), Options{Getenv: func(name string) string { return env[name] }})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "over HTTP") || !strings.Contains(err.Error(), "4318") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestWrongVariableStopsStartAndKeepsItsSecret(t *testing.T) {
	for name, wrong := range map[string][]string{
		"OTEL_TRACES_EXPORTER":               {"zipkin"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"http/json", "GRPC"},
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": {"http"},
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"collector:4317", "https://", "http://me:sesame@collector:4318", "ftp://collector", "http://collector?key=sesame", "http://sesame\x7f"},
		"OTEL_EXPORTER_OTLP_HEADERS":         {"sesame", "api-key=ok,Bearer sesame", "api-key=%sesame", "a b=sesame", "key=sesame%0d%0aX:y"},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":  {"=sesame"},
		"OTEL_EXPORTER_OTLP_TIMEOUT":         {"10s", "0", "-1", "99999999999"},
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":      {"/no/such/key"},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":     {"/no/such/file"},
	} {
		for _, value := range wrong {
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318", name: value}
			e, err := Open(t.Context(), Options{Getenv: func(name string) string { return env[name] }, Log: (&logtest.Log{}).Logger()})
			if e != nil || err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
}

func TestPlaintextHeadersAreWarnedOf(t *testing.T) {
	for endpoint, warns := range map[string]bool{"http://127.0.0.1:9": false, "http://localhost:9": false, "http://[::1]:9": false, "http://192.0.2.1:9": true, "https://192.0.2.1:9": false} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=sesame")
		e, log := exporting(t, "http/protobuf", endpoint)
		e.Close()
		if got := strings.Contains(log.String(), "plain HTTP"); got != warns || strings.Contains(log.String(), "sesame") {
			t.Errorf("%s: %s", endpoint, log)
		}
	}
}

// A collector that never answers costs spans, and two seconds at the end.
func TestHangingCollectorDelaysNoCaller(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // else the server does not notice that the client left
		<-r.Context().Done()
	}))
	defer server.Close()
	e, log := exporting(t, "http/protobuf", server.URL)
	done := make(chan struct{})
	go func() {
		for range 5000 { // the queue has 2,048
			e.span("certificate.issue")
		}
		e.Close()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("a caller waits for the collector")
	}
	if !strings.Contains(log.String(), "cannot export traces") {
		t.Errorf("%s", log)
	}
}

func TestCollectorThatComesLateGetsLaterSpans(t *testing.T) {
	address := proctest.FreeAddress(t)
	e, _ := exporting(t, "http/protobuf", "http://"+address)
	defer e.Close()
	e.span("lost")
	if err := e.provider.ForceFlush(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("the port is taken by another process now: %v", err)
	}
	got := &collector{}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: got, ReadHeaderTimeout: time.Minute}}
	server.Start()
	defer server.Close()
	e.span("certificate.issue")
	if err := e.provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	got.has(t, "certificate.issue")
}

func TestComplaintsAreOneLineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		c := &complaints{log: log.Logger()}
		for range 1000 {
			c.Handle(errors.New("no way"))
		}
		if strings.Count(log.String(), "no way") != 1 {
			t.Errorf("%s", log)
		}
		time.Sleep(every)
		c.Handle(errors.New("no way"))
		if strings.Count(log.String(), "no way") != 2 || !strings.Contains(log.String(), "not_logged_before=999") {
			t.Errorf("%s", log)
		}
	})
}

func TestRedirectIsNotFollowed(t *testing.T) {
	elsewhere := &collector{}
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=sesame")
	e, _ := exporting(t, "http/protobuf", server.URL)
	defer e.Close()
	e.span("certificate.issue")
	err := e.provider.ForceFlush(t.Context())
	if elsewhere.took.Len() > 0 || err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("another server got %q; %v", elsewhere.took.String(), err)
	}
}

func TestWordsOfCollectorAreBoundedAndHaveNoToken(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20sesame-open-sesame-open")
	for name, answer := range map[string]string{"words": "no, %s\nand no\x1b[2J", "a flood": "%s" + strings.Repeat("x", 5<<20)} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, answer, r.Header.Get("Authorization"))
		}))
		e, log := exporting(t, "http/protobuf", server.URL)
		e.span("certificate.issue")
		e.Close()
		server.Close()
		if text := log.String(); !strings.Contains(text, "cannot export traces") || strings.Contains(text, "sesame") || strings.Contains(text, "\x1b") || len(text) > 1000 {
			t.Errorf("%s: %q", name, text)
		}
	}
}
