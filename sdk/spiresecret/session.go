package spiresecret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

const (
	// answerTimeout is how long the first reply may take. Later silence is usual: nothing
	// has changed.
	answerTimeout = 30 * time.Second
	// maxReply bounds a reply, in bytes. A trust bundle of 100 roots has about 100 kB.
	maxReply = 4 << 20
	// breather is the least time between two replies that are taken; the sender waits.
	breather = 100 * time.Millisecond
	// pingEvery notices a server that hangs. gRPC servers end clients that ping more often
	// than every 5 minutes.
	pingEvery   = 6 * time.Minute
	pingTimeout = 20 * time.Second

	method = "/SpiffeWorkloadAPI/FetchX509SVID"
)

var errSilent = ca.Errorf(ca.Deadline, "the Workload API has not answered within %s", answerTimeout)

// session connects once and passes each reply to take, until the stream or ctx ends. The
// error is why it ended.
func (s *Source) session(ctx context.Context, take func(*workloadv1.X509SVIDResponse)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(answerTimeout, func() { cancel(errSilent) })
	defer silent.Stop()
	raw, err := s.config.Dial(ctx)
	if err != nil {
		return reasonFor(ctx, ca.Errorf(ca.Unavailable, "connect to the Workload API: %v", err))
	}
	defer func() { _ = raw.Close() }() // an error means that it is closed
	conn, err := clientOf(raw)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the same
	stream, err := fetch(ctx, conn)
	if err != nil {
		return reasonFor(ctx, err)
	}
	for {
		reply := new(workloadv1.X509SVIDResponse)
		if err := stream.RecvMsg(reply); err != nil {
			return reasonFor(ctx, err)
		}
		silent.Stop()
		take(reply)
		sleep(ctx, breather)
	}
}

// clientOf makes a gRPC client of one connection: it is this package that decides when to
// connect again.
func clientOf(conn net.Conn) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///workload-api",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of this machine
		grpc.WithContextDialer(once(conn)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)), grpc.WithMaxHeaderListSize(64<<10),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
}

// once returns a dialer that hands out the connection the first time.
func once(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	given := make(chan net.Conn, 1)
	given <- conn
	return func(context.Context, string) (net.Conn, error) {
		select {
		case conn := <-given:
			return conn, nil
		default:
			return nil, errors.New("the connection has ended")
		}
	}
}

// fetch calls FetchX509SVID by its standard name; see the proto file.
func fetch(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "workload.spiffe.io", "true")
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(&workloadv1.X509SVIDRequest{}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // io.EOF: RecvMsg has the status
	}
	return stream, stream.CloseSend()
}

// dialer connects to a unix socket whose server is one of these users, root or the agent's own.
func dialer(socket string, uids []uint32) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		server, err := unixpeer.Of(conn.(*net.UnixConn))
		if err == nil {
			err = checkServer(server.UID, uids, os.Geteuid())
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
}

func checkServer(uid uint32, allowed []uint32, own int) error {
	if uid == 0 || int(uid) == own || slices.Contains(allowed, uid) {
		return nil
	}
	return fmt.Errorf("its server runs as uid %d: only root, this agent's own user and those that are configured may serve it", uid)
}

// reasons are those of gRPC's codes, as in the Workload API's standard. Others are Unknown.
var reasons = map[codes.Code]ca.Reason{
	codes.PermissionDenied: ca.Denied, codes.Unauthenticated: ca.Unauthenticated, codes.InvalidArgument: ca.Invalid,
	codes.Unimplemented: ca.Unimplemented, codes.Unavailable: ca.Unavailable, codes.DeadlineExceeded: ca.Deadline,
	codes.ResourceExhausted: ca.RateLimited, codes.Internal: ca.Internal, codes.Aborted: ca.Aborted,
}

// reasonFor returns why a session ended.
func reasonFor(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, known := errors.AsType[*ca.Error](err); known {
		return err
	}
	if errors.Is(err, io.EOF) {
		return ca.Errorf(ca.Unavailable, "the Workload API has ended the stream")
	}
	reason := reasons[status.Code(err)]
	if reason == ca.Denied {
		return ca.Errorf(reason, "the Workload API has no X.509-SVID for this agent: %s", status.Convert(err).Message())
	}
	return ca.Errorf(reason, "the Workload API: %s", status.Convert(err).Message())
}

// sleep waits until the time has passed or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
