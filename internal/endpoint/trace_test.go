package endpoint

import (
	"errors"
	"net/http"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestServerGetsTrace(t *testing.T) {
	var got []string
	client := New(Options{Transport: answering(func(req *http.Request) (*http.Response, error) {
		got = append(got, req.Header.Get("Traceparent"))
		return nil, errors.New("no answer")
	})})
	own := http.Header{"X-Own": {"y"}}
	_, _ = client.Do(t.Context(), http.MethodGet, "https://server.example/", own, nil) // it always fails
	_, _ = client.Do(trace.WithParent(t.Context(), tracetest.Remote), http.MethodGet, "https://server.example/", own, nil)
	if len(got) != 2 || got[0] != "" || got[1] != tracetest.Remote || len(own) != 1 {
		t.Errorf("the server got %q, the caller's header is %v", got, own)
	}
}
