package wire

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/trace"
)

type callClient = grpc.BidiStreamingClient[providerv1.CSRSignStreamRequest, providerv1.CSRSignStreamResponse]

// calls sends the host's CSRSign calls over one stream, if the provider declares one and calls follow
// each other closely: for an agent with one secret, a stream would waste memory at both ends. It is
// opened in the background. Until it is open, and for what does not fit, each call is a unary one. A
// stream whose connection breaks is opened again. After a provider breaks the rules, none is.
type calls struct {
	authority providerv1.CertificateAuthorityStreamClient

	mu      sync.Mutex
	served  bool // by its metadata
	broken  bool
	opening bool
	open    *callStream // nil: there is none
	last    time.Time   // when a call was made
}

// closely is how soon after another a call is worth a stream.
const closely = time.Second

// announce takes what the metadata say.
func (c *calls) announce(served bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = served
}

// stream returns the open stream, or nil, and has one opened if it is worth it.
func (c *calls) stream() *callStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.last
	c.last = time.Now()
	if c.open == nil && c.served && !c.broken && !c.opening && c.last.Sub(before) < closely {
		c.opening = true
		go c.run()
	}
	return c.open
}

// sign makes a call over the stream. ok is false if it has to go by itself.
func (c *calls) sign(ctx context.Context, in *providerv1.CSRSignRequest) (reply *providerv1.CSRSignResponse, ok bool, err error) {
	s := c.stream()
	if s == nil || !fits(in) {
		return nil, false, nil
	}
	answer, ok, err := s.call(ctx, in)
	if !ok || err != nil {
		return nil, ok, err
	}
	switch outcome := answer.GetOutcome().(type) {
	case *providerv1.CSRSignAnswer_Response:
		return outcome.Response, true, nil
	case *providerv1.CSRSignAnswer_TooLarge:
		c.giveUp()
		return nil, false, nil
	}
	return nil, true, s.errorIn(answer.GetStatus())
}

// fits reports whether a request may share a message with others: it is small, and can be encoded.
func fits(in *providerv1.CSRSignRequest) bool {
	for _, text := range append([]string{in.GetRequestId(), in.GetSubjectId(), in.GetToken(), in.GetRequester()}, in.GetDnsNames()...) {
		if !utf8.ValidString(text) {
			return false
		}
	}
	return proto.Size(in) <= maxCall
}

// run opens a stream and reads its answers. It ends with the stream, and so with its connection.
func (c *calls) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := c.authority.CSRSignStream(ctx, grpc.MaxCallRecvMsgSize(maxBatch))
	if err != nil {
		c.set(nil, !mayReopen(err))
		return
	}
	s := &callStream{out: newOutbox[*providerv1.CSRSignStreamRequest](), waiting: map[uint64]*calling{}}
	c.set(s, false)
	var sending sync.WaitGroup
	sending.Go(func() { s.out.run(ctx, sendCalls(stream)) })
	err = s.read(stream)
	c.set(nil, !mayReopen(err))
	s.end(err)
	cancel()
	sending.Wait()
}

func (c *calls) set(open *callStream, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.opening = open, open != nil
	c.broken = c.broken || broken
}

// giveUp ends the use of streams: later calls go by themselves.
func (c *calls) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	c.open = nil
}

// mayReopen reports whether a stream ended as when a connection breaks, and not for what the
// provider did or lacks.
func mayReopen(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.Canceled
}

// sendCalls returns what sends a batch as one message.
func sendCalls(stream callClient) func([]*providerv1.CSRSignStreamRequest) error {
	return func(batch []*providerv1.CSRSignStreamRequest) error {
		all := batch[0]
		for _, one := range batch[1:] {
			all.Calls, all.Cancelled = append(all.Calls, one.GetCalls()...), append(all.Cancelled, one.GetCancelled()...)
		}
		return stream.Send(all)
	}
}

// callStream is one stream with the calls that wait for their answers.
type callStream struct {
	out *outbox[*providerv1.CSRSignStreamRequest]

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*calling // by number
	left    int                 // calls whose callers have left, and whose answer may still come
	ended   bool
}

// calling is a call that waits.
type calling struct {
	token  ca.Token
	answer chan *providerv1.CSRSignAnswer // gets one, or is closed
	err    error                          // why it was closed
}

// call makes one call. It does not know whether a certificate was made if it returns an error. ok is
// false if it was not made, and the call has to go by itself.
func (s *callStream) call(ctx context.Context, in *providerv1.CSRSignRequest) (answer *providerv1.CSRSignAnswer, ok bool, err error) {
	number, c := s.begin(ca.Token(in.GetToken()))
	if c == nil {
		return nil, false, nil
	}
	call := &providerv1.CSRSignCall{Number: number, Request: in, Traceparent: trace.Parent(ctx)}
	if deadline, bounded := ctx.Deadline(); bounded {
		call.Timeout = durationpb.New(max(time.Until(deadline), 1))
	}
	s.out.put(&providerv1.CSRSignStreamRequest{Calls: []*providerv1.CSRSignCall{call}})
	select {
	case answer, ok = <-c.answer:
		if !ok {
			return nil, true, c.err
		}
		return answer, true, nil
	case <-ctx.Done():
		s.leave(number)
		return nil, true, status.FromContextError(ctx.Err()).Err()
	}
}

// begin returns the number of a new call, and nil if the stream takes no more.
func (s *callStream) begin(token ca.Token) (uint64, *calling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.waiting) >= maxCalls {
		return 0, nil
	}
	s.last++
	c := &calling{token: token, answer: make(chan *providerv1.CSRSignAnswer, 1)}
	s.waiting[s.last] = c
	return s.last, c
}

// leave gives up a call.
func (s *callStream) leave(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[number] == nil || s.ended {
		return
	}
	delete(s.waiting, number)
	s.left++
	s.out.put(&providerv1.CSRSignStreamRequest{Cancelled: []uint64{number}})
}

// read hands answers out until the stream ends, and returns why.
func (s *callStream) read(stream callClient) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the provider ended the stream of calls")
		}
		if err != nil {
			return err
		}
		if len(in.GetAnswers()) == 0 {
			return status.Error(codes.Internal, "the provider sent a message without an answer")
		}
		for _, answer := range in.GetAnswers() {
			if err := s.take(answer); err != nil {
				return err
			}
		}
	}
}

// take hands out one answer. Each call gets one; those that were given up may have had one on its
// way.
func (s *callStream) take(answer *providerv1.CSRSignAnswer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.waiting[answer.GetNumber()]
	switch {
	case c != nil:
		delete(s.waiting, answer.GetNumber())
		c.answer <- answer
	case s.left > 0:
		s.left--
	default:
		return status.Error(codes.Internal, "the provider answered a call that does not wait for an answer")
	}
	return nil
}

// end fails the calls that wait.
func (s *callStream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	err = status.Errorf(codes.Unavailable, "the stream of calls to the provider ended: %s", CleanText(status.Convert(err).Message(), s.tokens()...))
	for _, c := range s.waiting {
		c.err = err
		close(c.answer)
	}
	clear(s.waiting)
}

// tokens returns those of the calls in flight: an error of one call must not show another's. The lock
// is held.
func (s *callStream) tokens() (all []ca.Token) {
	for _, c := range s.waiting {
		if c.token != "" && !slices.Contains(all, c.token) {
			all = append(all, c.token)
		}
	}
	return all
}

// errorIn returns the status of an answer as a call by itself would have it.
func (s *callStream) errorIn(serialized []byte) error {
	said := &spb.Status{}
	if err := proto.Unmarshal(serialized, said); err != nil || said.GetCode() == 0 {
		return status.Error(codes.Internal, "the provider answered a call with neither a certificate nor an error")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	said.Message = CleanText(said.GetMessage(), s.tokens()...)
	return status.FromProto(said).Err()
}
