package wire

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// watch opens a watch and passes on the sets that it sends, at the pace of [pace]. If the
// provider ends the watch of what, it returns [ca.ErrUnavailable]. A set has most bytes.
func watch[Q, R any](
	ctx context.Context, open func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[R], error), req *Q,
	most int, what string, set func(*R) ([]byte, error), changed func([]byte) error,
) error {
	// Leaving ends the stream, and with it the goroutine of pace.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx, req, grpc.MaxCallRecvMsgSize(most+64))
	if err != nil {
		return failed(ctx, err, "")
	}
	return pace(ctx, func() ([]byte, error) {
		out, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, ca.Errorf(ca.Unavailable, "the provider ended the watch of %s", what)
		case err != nil:
			return nil, failed(ctx, err, "")
		}
		return set(out)
	}, changed)
}
