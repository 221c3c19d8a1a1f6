package provider_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestDoHTTPSendsTrace(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Traceparent"))
	}))
	defer server.Close()
	for _, parent := range []string{"", tracetest.Remote} {
		req, err := http.NewRequestWithContext(trace.WithParent(t.Context(), parent), http.MethodGet, server.URL, nil)
		must(t, err)
		if _, err := provider.DoHTTP(server.Client(), req); err != nil || len(req.Header) != 0 {
			t.Errorf("%v, and the caller's header is %v", err, req.Header)
		}
	}
	if len(got) != 2 || got[0] != "" || got[1] != tracetest.Remote {
		t.Errorf("the server got %q", got)
	}
}
