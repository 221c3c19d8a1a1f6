package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// maxHeld is how many calls a provider works on for one stream, those included whose callers have
// left and whose author's code has not returned.
const maxHeld = 4 * maxCalls

type callStreamServer = grpc.BidiStreamingServer[providerv1.CSRSignStreamRequest, providerv1.CSRSignStreamResponse]

// callServer serves streams of calls.
type callServer struct {
	providerv1.UnimplementedCertificateAuthorityStreamServer
	signer ca.Client
}

// serving is one stream at the provider. Its workers make the calls; each stays until the stream ends,
// as its stack has grown by then.
type serving struct {
	signer  ca.Client
	ctx     context.Context
	out     *outbox[*providerv1.CSRSignAnswer]
	idle    chan *served
	working sync.WaitGroup

	mu        sync.Mutex
	held      map[uint64]context.CancelFunc // calls in progress, by number
	finishing bool
}

// served is a call with its context.
type served struct {
	*providerv1.CSRSignCall
	ctx context.Context
}

// CSRSignStream serves one stream, until the host ends it or the provider stops.
func (c callServer) CSRSignStream(stream callStreamServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s := &serving{signer: c.signer, ctx: ctx, out: newOutbox[*providerv1.CSRSignAnswer](), idle: make(chan *served), held: map[uint64]context.CancelFunc{}}
	send := func(batch []*providerv1.CSRSignAnswer) error {
		return stream.Send(&providerv1.CSRSignStreamResponse{Answers: batch})
	}
	var sending sync.WaitGroup
	sending.Go(func() { s.out.run(ctx, send) })
	read := make(chan error, 1)
	go func() { read <- s.read(stream) }()
	var err error
	select {
	case err = <-read:
	case <-stopping(c.signer):
		err = errStopping()
	}
	last := errors.Is(err, io.EOF) || errors.Is(err, errStopping())
	if last {
		s.finish()
	}
	cancel()
	sending.Wait()
	if last {
		err = cmp.Or(s.out.flush(send), errors.Unwrap(err))
	}
	return err
}

// errStopping ends a stream as the provider stops. Calls in flight are answered first.
// It is made on first use, as it has messages with reflection.
var errStopping = sync.OnceValue(func() error {
	return fmt.Errorf("%w", ToStatus(ca.Errorf(ca.Unavailable, "the provider is stopping")))
})

// stopping returns a channel that a provider closes when it stops, or nil.
func stopping(signer ca.Client) <-chan struct{} {
	if s, ok := signer.(interface{ Stopping() <-chan struct{} }); ok {
		return s.Stopping()
	}
	return nil
}

// finish waits for the calls in progress, and begins no more.
func (s *serving) finish() {
	s.mu.Lock()
	s.finishing = true
	s.mu.Unlock()
	s.working.Wait()
}

func (s *serving) read(stream callStreamServer) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, call := range in.GetCalls() {
			if err := s.begin(call); err != nil {
				return err
			}
		}
		for _, number := range in.GetCancelled() { // of a call in the same message, too
			s.cancel(number)
		}
	}
}

// begin has a worker make a call. It waits for none.
func (s *serving) begin(call *providerv1.CSRSignCall) error {
	ctx, cancel := contextOf(s.ctx, call)
	held, err := s.hold(call.GetNumber(), cancel)
	if err != nil {
		cancel()
		return err
	}
	if held > maxHeld {
		s.answer(call.GetNumber(), failure(status.Errorf(codes.Unavailable, "%d calls are in progress", maxHeld)))
		s.working.Done()
		return nil
	}
	job := &served{call, ctx}
	select {
	case s.idle <- job:
	default:
		go s.work(job)
	}
	return nil
}

// contextOf returns the context of a call: with its own deadline and its own trace.
func contextOf(ctx context.Context, call *providerv1.CSRSignCall) (context.Context, context.CancelFunc) {
	if parent := call.GetTraceparent(); parent != "" {
		ctx = withParent(trace.WithParent(ctx, parent))
	}
	if call.GetTimeout() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, call.GetTimeout().AsDuration())
}

// work makes calls, one after the other, until the stream ends.
func (s *serving) work(job *served) {
	for {
		s.answer(job.GetNumber(), s.sign(job))
		s.working.Done()
		select {
		case job = <-s.idle:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *serving) sign(job *served) (out *providerv1.CSRSignAnswer) {
	var err error
	defer func() {
		if err != nil {
			out = failure(err)
		}
	}()
	defer recovered(logOf(s.ctx), providerv1.CertificateAuthorityStream_CSRSignStream_FullMethodName, job.GetRequest(), &err)
	cert, failed := Sign(job.ctx, s.signer, job.GetRequest())
	if err = failed; err != nil {
		return nil
	}
	reply := CertificateToProto(cert)
	if proto.Size(reply) > maxAnswer {
		return &providerv1.CSRSignAnswer{Outcome: &providerv1.CSRSignAnswer_TooLarge{TooLarge: true}}
	}
	return &providerv1.CSRSignAnswer{Outcome: &providerv1.CSRSignAnswer_Response{Response: reply}}
}

// failure is the answer with an error: a gRPC status.
func failure(err error) *providerv1.CSRSignAnswer {
	serialized, _ := proto.Marshal(status.Convert(err).Proto()) // it has valid text alone, as ToStatus cleans it
	return &providerv1.CSRSignAnswer{Outcome: &providerv1.CSRSignAnswer_Status{Status: serialized}}
}

// hold records a call in progress, and returns how many there are.
func (s *serving) hold(number uint64, cancel context.CancelFunc) (held int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.finishing:
		return 0, errStopping()
	case s.held[number] != nil:
		return 0, status.Errorf(codes.InvalidArgument, "two calls have the number %d", number)
	}
	s.held[number] = cancel
	s.working.Add(1)
	return len(s.held), nil
}

// answer sends the answer to a call, which ends with that.
func (s *serving) answer(number uint64, out *providerv1.CSRSignAnswer) {
	s.mu.Lock()
	cancel := s.held[number]
	delete(s.held, number)
	s.mu.Unlock()
	cancel()
	out.Number = number
	s.out.put(out)
}

// cancel ends the context of a call, whose answer is sent all the same.
func (s *serving) cancel(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.held[number]; cancel != nil {
		cancel()
	}
}
