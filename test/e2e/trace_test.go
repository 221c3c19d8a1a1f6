package e2e

import (
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// spanCollector takes traces over HTTP.
type spanCollector struct {
	mu    sync.Mutex
	took  []*tracev1.ResourceSpans
	wrong string
}

func (c *spanCollector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	in := &tracev1.TracesData{} // on the wire, the request is the same
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, in) != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wrong = r.URL.Path
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, in.GetResourceSpans()...)
}

// listen serves OTLP over HTTP and returns the URL.
func (c *spanCollector) listen(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return server.URL
}

// below returns the spans of that name whose parent is the given span; nil: those without one.
func (c *spanCollector) below(parent *tracev1.Span, name string) (found []*tracev1.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range c.took {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				if span.GetName() == name && string(span.GetParentSpanId()) == string(parent.GetSpanId()) &&
					(parent == nil || string(span.GetTraceId()) == string(parent.GetTraceId())) {
					found = append(found, span)
				}
			}
		}
	}
	return found
}

// call returns the call of a CA in an issuance that got that far. An attempt while the provider starts may not.
func (c *spanCollector) call() *tracev1.Span {
	for _, root := range c.below(nil, "certificate.issue") {
		for _, sign := range c.below(root, "sign") {
			if calls := c.below(sign, "CSRSign"); len(calls) > 0 {
				return calls[0]
			}
		}
	}
	return nil
}

// text is all that was sent.
func (c *spanCollector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &tracev1.TracesData{ResourceSpans: c.took}
	content, err := proto.Marshal(out)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// tracedCA signs as Vault does, and remembers the parents of requests.
type tracedCA struct {
	*catest.CA
	mu      sync.Mutex
	parents []string
}

func (c *tracedCA) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.parents = append(c.parents, r.Header.Get("Traceparent"))
	c.mu.Unlock()
	if r.Method == http.MethodGet { // how long does the token live?
		_, _ = io.WriteString(w, `{"data":{"ttl":0}}`)
		return
	}
	var in struct {
		CSR string `json:"csr"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	cert, signErr := c.CSRSign(r.Context(), ca.SignRequest{CSR: []byte(in.CSR), TTL: ttl})
	if err != nil || signErr != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]string{"certificate": string(cert.Chain)}})
}

func (c *tracedCA) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.parents...)
}

// startTracedAgent starts an agent with the real provider for Vault.
func startTracedAgent(t *testing.T, by *tracedCA, env ...string) *agent {
	t.Helper()
	server := httptest.NewTLSServer(by)
	t.Cleanup(server.Close)
	a := prepareAgent(t, agentConfig{token: aToken})
	a.env, a.bin = env, programs.Folder(t, "countersign", "countersign-provider-vault")
	root := filepath.Join(a.dir, "root.pem")
	writeWhole(t, root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	a.edit(t, func(c map[string]any) {
		entry := c["providers"].([]any)[0].(map[string]any)
		entry["name"], entry["sha256"] = "vault", pinOf(t, filepath.Join(a.bin, "countersign-provider-vault"))
		entry["settings"] = map[string]any{"url": server.URL, "root_file": root, "role": "mesh", "bundle_file": string(by.Bundle().PEM())}
	})
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a
}

func TestTraceLeadsFromAgentOverProviderToCA(t *testing.T) {
	t.Parallel()
	spans, by := &spanCollector{}, &tracedCA{CA: catest.NewCA(catest.Options{})}
	startTracedAgent(t, by, "OTEL_EXPORTER_OTLP_ENDPOINT="+spans.listen(t),
		"OTEL_SERVICE_NAME=edge-7", "OTEL_BSP_SCHEDULE_DELAY=50")
	var call *tracev1.Span
	poll(t, "the spans of an issuance", func() bool { call = spans.call(); return call != nil })
	parent := "00-" + hex.EncodeToString(call.GetTraceId()) + "-" + hex.EncodeToString(call.GetSpanId()) + "-01"
	if asked := strings.Join(by.asked(), " "); !strings.Contains(asked, parent) {
		t.Errorf("the CA was asked in %q, not in %s", asked, parent)
	}
	text := spans.text()
	for _, word := range []string{"edge-7", "vault", "spiffe://"} {
		if !strings.Contains(text, word) {
			t.Errorf("the spans have no %s: %q", word, text)
		}
	}
	for _, never := range []string{aToken, "BEGIN ", "X-Vault"} {
		if strings.Contains(text, never) {
			t.Errorf("the spans have %s: %q", never, text)
		}
	}
	if spans.wrong != "" {
		t.Errorf("a request to %s could not be read", spans.wrong)
	}
}

func TestAgentTracesNothingByDefault(t *testing.T) {
	t.Parallel()
	by := &tracedCA{CA: catest.NewCA(catest.Options{})}
	a := startTracedAgent(t, by, "OTEL_SERVICE_NAME=edge-7", "OTEL_TRACES_SAMPLER=always_on")
	a.log.await(t, "serving new certificate")
	if asked := by.asked(); len(asked) == 0 || strings.Join(asked, "") != "" {
		t.Errorf("the CA was asked in %q", asked)
	}
	if strings.Contains(a.log.String(), "traces") {
		t.Errorf("%s", a.log)
	}
}
