package kubeca

import (
	"net/http"
	"testing"

	"github.com/countersign-dev/countersign/sdk/provider/testkit"
	"github.com/countersign-dev/countersign/sdk/trace"
)

func TestAPIServerGetsTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := newCluster(t)
	var got []string
	c.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		c.set(func() { got = append(got, r.Header.Get("Traceparent")) })
		return false
	}
	req, _ := testkit.Request(t, web, "web.example.org")
	for _, sent := range []string{parent, ""} {
		c.set(func() { got = nil })
		_, _ = open(t, c.direct()).CSRSign(trace.WithParent(t.Context(), sent), req) // what it answers is for others
		c.set(func() {
			if len(got) == 0 || got[0] != sent {
				t.Errorf("the API server got %q, want %q", got, sent)
			}
		})
	}
}
