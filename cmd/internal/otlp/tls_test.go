package otlp

import (
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCollectorIsVerifiedOverTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	got := &collector{}
	server := httptest.NewUnstartedServer(got)
	server.EnableHTTP2, server.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	root := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	e, said := exporting(t, "", server.URL)
	e.span("untrusted")
	e.Close()
	if !strings.Contains(said.String(), "cannot export traces") || got.took.Len() > 0 {
		t.Errorf("an unknown server got %q; %s", got.took.String(), said)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", root)
	e, _ = exporting(t, "", server.URL)
	e.span("certificate.issue")
	e.flushed(t)
	got.has(t, "certificate.issue")
}
