package provider

import (
	"context"
	"net/http"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// TraceParent returns the W3C traceparent of the trace that the host's call belongs to, to be
// sent to the CA as an HTTP header of that name; empty if the host traces nothing. Package rest
// and [DoHTTP] send it, and so does a gRPC client that is called with ctx.
func TraceParent(ctx context.Context) string { return trace.Parent(ctx) }

// traced returns the request with the header.
func traced(req *http.Request) *http.Request {
	parent := TraceParent(req.Context())
	if parent == "" {
		return req
	}
	req = req.Clone(req.Context())
	req.Header.Set(trace.Header, parent)
	return req
}
