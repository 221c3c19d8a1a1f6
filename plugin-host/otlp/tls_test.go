package otlp

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCollectorIsVerifiedOverTLS(t *testing.T) {
	got := &collector{}
	server := httptest.NewUnstartedServer(got)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	root := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "")
		t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2000") // gRPC dials until then
		e, log := exporting(t, protocol, server.URL)
		e.span("untrusted")
		e.Close()
		if !strings.Contains(log.String(), "cannot export traces") || got.took.Len() > 0 {
			t.Errorf("%s: an unknown server got %q; %s", protocol, got.took.String(), log)
		}
		t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", root)
		e, _ = exporting(t, protocol, server.URL)
		e.span("certificate.issue")
		e.Close()
		got.has(t, "certificate.issue")
		got.took.Reset()
	}
}
