package istioca

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/strangers"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// service describes the API to gRPC. CreateCertificate is registered as a stream of one
// message each way, which is the same on the wire: a generated method would read and decode an
// unauthenticated caller's message, without a limit on its time, before the caller is known.
func (s *Server) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: security.ServiceName,
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
	how, fault := s.answer(stream)
	if fault != nil {
		s.cfg.Observe(Event{fault.result, time.Since(began)})
		s.logFault(stream.Context(), fault)
		s.record(stream.Context(), fault)
		return fault.status()
	}
	s.cfg.Observe(Event{how, time.Since(began)})
	return nil
}

// answer sends the reply and returns how it was obtained, or why there is none.
func (s *Server) answer(stream grpc.ServerStream) (Result, *fault) {
	ctx, began := stream.Context(), s.callers.Load()
	if err := s.cfg.Ready(); err != nil {
		return "", faultf(NotReady, codes.Unavailable, "the server is not ready yet; retry later").because(err)
	}
	who, fault := s.admit(ctx)
	if fault != nil {
		return "", fault
	}
	if p, ok := peer.FromContext(ctx); ok {
		strangers.Known(p.Addr)
	}
	free, full := s.calls.TakeOf(who.key(), who.machine())
	if full != nil {
		return "", faultf(limitOf(full), codes.ResourceExhausted, "too many calls of this caller are in progress; retry later").of(who)
	}
	defer free()
	request, fault := s.receive(stream)
	if fault != nil {
		return "", fault.of(who)
	}
	got, fault := s.issue(traced(ctx), who, request)
	if fault != nil {
		return "", fault.of(who)
	}
	if fault := s.give(stream, got.Certificate, began); fault != nil {
		return "", got.withheld(ctx, fault).of(who)
	}
	if got.unrenewable != nil {
		s.warn(ctx, who, got)
		return Unrenewable, nil
	}
	return who.result(), nil
}

// give sends a certificate, unless other settings are in force than when the call began.
func (s *Server) give(stream grpc.ServerStream, cert ra.Certificate, began *callers) *fault {
	if s.callers.Load() != began {
		return changed()
	}
	reply, fault := replyOf(cert)
	if fault != nil {
		return fault
	}
	if err := stream.SendMsg(reply); err != nil {
		return faultf(Gone, status.Code(err), "the client went away").because(err)
	}
	return nil
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
	late := time.NewTimer(s.cfg.Times.Message)
	defer late.Stop()
	select {
	case err := <-read:
		if err != nil {
			return nil, asReceived(err)
		}
		return request, nil
	case <-late.C:
		return nil, faultf(Malformed, codes.DeadlineExceeded, "the request did not arrive within %s", s.cfg.Times.Message)
	}
}
