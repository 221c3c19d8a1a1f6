package wire

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// withParent adds the trace's parent to what a call sends.
func withParent(ctx context.Context) context.Context {
	parent := trace.Parent(ctx)
	if parent == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, trace.Header, parent)
}

// traced hands the parent that a host sent to the provider, and to the gRPC calls that the
// provider makes for this one.
func traced(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if sent := metadata.ValueFromIncomingContext(ctx, trace.Header); len(sent) == 1 {
		ctx = withParent(trace.WithParent(ctx, sent[0]))
	}
	return next(ctx, req)
}
