package wire

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Register serves p on r in one version of the protocol.
func Register(r grpc.ServiceRegistrar, version Protocol, p Provider) {
	s := &server{p: p, streams: version.streams}
	version.Register(r, p)
	providerv1.RegisterProviderServer(r, s)
	providerv1.RegisterRootSourceServer(r, s)
	providerv1.RegisterRootWatcherServer(r, s)
	providerv1.RegisterTokenExchangerServer(r, s)
	providerv1.RegisterRenewalInfoServer(r, s)
	providerv1.RegisterRevocationSourceServer(r, s)
	providerv1.RegisterJwtSvidServer(r, s)
	providerv1.RegisterWitSvidServer(r, s)
}

// server embeds no Unimplemented type, so that the compiler finds methods that are missing
// here.
type server struct {
	providerv1.UnsafeProviderServer
	providerv1.UnsafeRootSourceServer
	providerv1.UnsafeRootWatcherServer
	providerv1.UnsafeTokenExchangerServer
	providerv1.UnsafeRenewalInfoServer
	providerv1.UnsafeRevocationSourceServer
	providerv1.UnsafeJwtSvidServer
	providerv1.UnsafeWitSvidServer
	p       Provider
	streams bool
}

func (s *server) GetMetadata(ctx context.Context, _ *providerv1.GetMetadataRequest) (*providerv1.GetMetadataResponse, error) {
	md, err := s.p.Metadata(ctx)
	if err != nil {
		return nil, ToStatus(err)
	}
	out := metadataToProto(md)
	out.CsrSignStream = s.streams
	return out, nil
}

func (s *server) Validate(ctx context.Context, in *providerv1.ValidateRequest) (*providerv1.ValidateResponse, error) {
	validate := s.p.Validate
	if in.GetOnline() {
		validate = s.p.ValidateOnline
	}
	found, err := validate(ctx, in.GetSettings().AsMap())
	unasked := in.GetOnline() && ca.ActionFor(err) == ca.Missing
	if err != nil && !unasked {
		return nil, ToStatus(err)
	}
	out := diagnosticsToProto(found)
	out.Online = in.GetOnline() && !unasked
	return out, nil
}

func (s *server) Configure(ctx context.Context, in *providerv1.ConfigureRequest) (*providerv1.ConfigureResponse, error) {
	if err := s.p.Configure(ctx, in.GetSettings().AsMap()); err != nil {
		return nil, ToStatus(err)
	}
	return &providerv1.ConfigureResponse{}, nil
}

func (s *server) Ready(ctx context.Context, _ *providerv1.ReadyRequest) (*providerv1.ReadyResponse, error) {
	if err := s.p.Ready(ctx); err != nil {
		return nil, ToStatus(err)
	}
	return &providerv1.ReadyResponse{}, nil
}

func (s *server) GetRoots(ctx context.Context, _ *providerv1.GetRootsRequest) (*providerv1.GetRootsResponse, error) {
	roots, err := s.p.Roots(ctx)
	if err != nil {
		return nil, ToStatus(err)
	}
	return &providerv1.GetRootsResponse{Roots: roots}, nil
}

func (s *server) WatchRoots(_ *providerv1.WatchRootsRequest, stream grpc.ServerStreamingServer[providerv1.WatchRootsResponse]) error {
	return ToStatus(s.p.WatchRoots(stream.Context(), func(roots []byte) error {
		return stream.Send(&providerv1.WatchRootsResponse{Roots: roots})
	}))
}

func (s *server) ExchangeToken(ctx context.Context, in *providerv1.ExchangeTokenRequest) (*providerv1.ExchangeTokenResponse, error) {
	req, err := tokenRequestFromProto(in)
	if err != nil {
		return nil, ToStatus(err)
	}
	out, err := s.p.ExchangeToken(ctx, req)
	if err != nil {
		return nil, toStatus(err, req.SubjectToken)
	}
	return exchangedToProto(out), nil
}

// ServerOptions returns the options for the gRPC server of a provider: the limits of messages, a
// window for each stream that does not grow, the parent of a trace, and a recovery that turns a
// panic into an Internal status and logs the stack, so that the process survives. A nil log is
// [slog.Default].
func ServerOptions(log *slog.Logger) []grpc.ServerOption {
	log = cmp.Or(log, slog.Default())
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(MaxHeaders),
		// A window that grows costs a PING and its answer for each message.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
			defer recovered(log, info.FullMethod, req, &err)
			return next(ctx, req)
		}, traced),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer recovered(log, info.FullMethod, nil, &err)
			return next(srv, logging{stream, log})
		}),
	}
}

// logging is a stream whose calls log their panics.
type logging struct {
	grpc.ServerStream
	log *slog.Logger
}

type logKey struct{}

// Context implements [grpc.ServerStream].
func (l logging) Context() context.Context {
	return context.WithValue(l.ServerStream.Context(), logKey{}, l.log)
}

func logOf(ctx context.Context) *slog.Logger {
	if log, ok := ctx.Value(logKey{}).(*slog.Logger); ok {
		return log
	}
	return slog.Default()
}

// maxStack bounds the stack in a record, in bytes: hosts limit the length of a line.
const maxStack = 8 << 10

// recovered must be deferred directly, as recover works nowhere else.
func recovered(log *slog.Logger, method string, req any, err *error) {
	value := recover()
	if value == nil {
		return
	}
	stack := debug.Stack()
	log.Error("call panicked", "method", method, "panic", CleanText(fmt.Sprint(value), tokenOf(req)), "stack", string(stack[:min(len(stack), maxStack)]))
	*err = ToStatus(ca.Errorf(ca.Internal, "the provider panicked; its log has the stack"))
}

// tokenOf returns the token of a request, which the text of a panic may quote.
func tokenOf(req any) ca.Token {
	switch req := req.(type) {
	case interface{ GetToken() string }:
		return ca.Token(req.GetToken())
	case interface{ GetSubjectToken() string }:
		return ca.Token(req.GetSubjectToken())
	}
	return ""
}
