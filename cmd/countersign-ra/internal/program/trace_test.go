package program

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
)

// Names stand in OTLP's messages as they are, so this collector decodes nothing.
func TestRequestIsTracedToTheProvider(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var took bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		took.Write(body)
	}))
	defer collector.Close()
	api := newAPIServer(t)
	api.addPod(t, "shop", "web-0")
	dir := files(t, api, usual)
	cmd := command(context.WithoutCancel(t.Context()), t, "serve", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_BSP_SCHEDULE_DELAY=50")
	r := launch(t, dir, cmd)
	r.until(t, "the collector has the spans", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, word := range []string{"certificate.request", "sign", "CSRSign", config.Program, "shop/web/web-0", "spiffe://cluster.local/ns/shop/sa/web"} {
			if !strings.Contains(took.String(), word) {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(took.String(), "BEGIN ") {
		t.Errorf("the spans have a certificate or a CSR: %q", took.String())
	}
}
