package wire

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/internal/memory"
)

const (
	// room is what one reply takes at most: as it arrives, in one piece, and decoded.
	room = 3 * MaxMessage
	// receiveTimeout bounds how long one reply may take from its beginning to its end. Most begin
	// when they are complete.
	receiveTimeout = 10 * time.Second
	// small is a reply that its caller may keep for nothing: a certificate with its chain. Its caller may
	// wait for another reply, such as the roots, for which the whole share may be needed.
	small = 16 << 10
	// MaxHeaders bounds the metadata of a call, in bytes, in either direction.
	MaxHeaders = 64 << 10
)

// limited sets the message limits on each call, where they override go-plugin's 2 GiB for the
// connection, and sends the trace's parent. It receives no more at once than its share allows.
type limited struct {
	conn  grpc.ClientConnInterface
	share *memory.Budget
}

// limits returns the options of a call; those it has already count.
func limits(opts []grpc.CallOption) []grpc.CallOption {
	return append([]grpc.CallOption{grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)}, opts...)
}

func (l limited) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return l.conn.NewStream(withParent(ctx), desc, method, limits(opts)...)
}

// Invoke waits until the reply begins, of which gRPC's flow control lets 64 KiB arrive. The rest
// arrives once the share has room for it.
func (l limited) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	receiving, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.NewStream(receiving, &grpc.StreamDesc{}, method, opts...)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(args); err != nil {
		return err
	}
	if _, err := stream.Header(); err != nil {
		return err
	}
	claim, err := l.share.Take(ctx, room)
	if err != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	slow := time.AfterFunc(receiveTimeout, cancel)
	err = stream.RecvMsg(reply)
	if !slow.Stop() && err != nil && ctx.Err() == nil {
		err = status.Errorf(codes.DeadlineExceeded, "the reply did not end within %s of its beginning", receiveTimeout)
	}
	if size := sizeOf(reply); size > small {
		claim.Returned(ctx, size)
	} else {
		claim.Release()
	}
	return err
}

func sizeOf(reply any) int64 {
	if m, ok := reply.(proto.Message); ok {
		return int64(proto.Size(m))
	}
	return 0
}
