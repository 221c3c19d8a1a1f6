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
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "")
		t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2000") // gRPC dials until then
		e, said := exporting(t, protocol, server.URL)
		e.span("untrusted")
		e.Close()
		if !strings.Contains(said.String(), "cannot export traces") || got.took.Len() > 0 {
			t.Errorf("%s: an unknown server got %q; %s", protocol, got.took.String(), said)
		}
		t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", root)
		t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "120000")
		e, _ = exporting(t, protocol, server.URL)
		e.span("certificate.issue")
		_ = e.provider.ForceFlush(t.Context()) // over gRPC, the collector's answer is not valid
		e.Close()
		got.has(t, "certificate.issue")
		got.took.Reset()
	}
}
