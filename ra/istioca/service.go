package istioca

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	security "istio.io/api/security/v1alpha1"

	"github.com/countersign-dev/countersign/sdk/trace"
)

// service describes the API to gRPC. CreateCertificate is registered as a stream of one
// message each way, which is the same on the wire: a generated method would read and decode an
// unauthenticated caller's message, without a limit on its time, before the caller is known.
func (s *Server) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: security.IstioCertificateService_ServiceDesc.ServiceName,
		Streams: []grpc.StreamDesc{{
			StreamName: "CreateCertificate",
			Handler:    func(_ any, stream grpc.ServerStream) error { return s.serve(stream) },
		}},
		Metadata: security.IstioCertificateService_ServiceDesc.Metadata,
	}
}

// serve answers one call.
func (s *Server) serve(stream grpc.ServerStream) error {
	began := time.Now()
	reply, how, fault := s.answer(stream)
	if fault != nil {
		s.cfg.Observe(Event{fault.result, time.Since(began)})
		s.tell(stream.Context(), fault)
		s.record(stream.Context(), fault)
		return fault.status()
	}
	err := stream.SendMsg(reply)
	s.cfg.Observe(Event{how, time.Since(began)})
	return err
}

// answer returns the reply and how it was obtained, or why there is none.
func (s *Server) answer(stream grpc.ServerStream) (*security.IstioCertificateResponse, Result, *fault) {
	ctx, began := stream.Context(), s.callers.Load()
	if err := s.cfg.Ready(); err != nil {
		return nil, "", faultf(NotReady, codes.Unavailable, "the server is not ready yet; retry later").because(err)
	}
	who, fault := s.admit(ctx)
	if fault != nil {
		return nil, "", fault
	}
	free, full := s.calls.Take(who.key())
	if full != nil {
		return nil, "", faultf(limitOf(full), codes.ResourceExhausted, "too many calls of this caller are in progress; retry later").of(who)
	}
	defer free()
	request, fault := s.receive(stream)
	if fault != nil {
		return nil, "", fault.of(who)
	}
	cert, fault := s.issue(traced(ctx), who, request)
	if fault != nil {
		return nil, "", fault.of(who)
	}
	if s.callers.Load() != began {
		return nil, "", changed().of(who)
	}
	reply, fault := replyOf(cert)
	return reply, who.result(), fault
}

// traced returns ctx with the trace that the caller, who is known by now, sent along.
func traced(ctx context.Context) context.Context {
	if sent := metadata.ValueFromIncomingContext(ctx, trace.Header); len(sent) == 1 {
		return trace.WithParent(ctx, sent[0])
	}
	return ctx
}

// receive reads the message. What arrives too late ends with the stream.
func (s *Server) receive(stream grpc.ServerStream) (*security.IstioCertificateRequest, *fault) {
	request := &security.IstioCertificateRequest{}
	read := make(chan error, 1)
	go func() { read <- stream.RecvMsg(request) }()
	ctx, cancel := context.WithTimeout(stream.Context(), s.cfg.Times.Message)
	defer cancel()
	select {
	case err := <-read:
		if err != nil {
			return nil, asReceived(err)
		}
		return request, nil
	case <-ctx.Done():
		return nil, faultf(Malformed, codes.DeadlineExceeded, "the request did not arrive within %s", s.cfg.Times.Message)
	}
}
