package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func protocolChecks() []Check {
	return []Check{
		{"PROTO-01", Behaviour, "Without settings, CSRSign returns not configured (FAILED_PRECONDITION).", "The host then sends the settings, also to a provider that has lost them.", nil, signUnconfigured},
		{"PROTO-02", Behaviour, "Without settings, Ready returns not configured or unavailable.", "The host must not send requests yet.", nil, readyUnconfigured},
		{"PROTO-03", Behaviour, "It ignores unknown fields.", "A later host sends more of them, and must work with older providers.", nil, unknownFields},
		{"PROTO-04", Behaviour, "It returns unimplemented for an unknown method, and keeps working.", "A later host tries new methods, and does without them if they do not exist.", nil, unknownMethod},
		{"PROTO-05", Behaviour, "grpc.health.v1.Health returns SERVING for the service \"plugin\".", "The host checks every few seconds and kills a provider that does not answer.", nil, healthServing},
		{"PROTO-06", Behaviour, "It returns INVALID_ARGUMENT for a request without a CSR, and keeps working.", "A provider must answer any input with a status from the table.", nil, emptyRequest},
		{"PROTO-07", Behaviour, "It rejects a message of more than 4 MiB, and keeps working.", "One message must not use up all memory.", nil, hugeMessage},
		{"PROTO-08", Behaviour, "A google.rpc.ErrorInfo of the domain countersign.dev has the reason that the table lists for its status.", "If they contradict each other, the host uses the code and the reason is lost.", nil, errorInfoFits},
		{"PROTO-09", Behaviour, "If its metadata declare the stream of calls, each call on it is answered once, by its own number, and none ends another.", "The host makes all calls of its callers over one stream.", []string{"SIGN-04", "SIGN-20", "PROTO-06"}, callsOnAStream},
	}
}

func signUnconfigured(ctx context.Context, s *Session) error {
	i, err := s.Fresh(ctx)
	if err != nil {
		return err
	}
	req, _, err := s.good()
	if err != nil {
		return err
	}
	if _, err = i.CSRSign(ctx, req); !errors.Is(err, ca.ErrNotConfigured) {
		return fmt.Errorf("it answers %w", orNone(err))
	}
	return nil
}

func readyUnconfigured(ctx context.Context, s *Session) error {
	i, err := s.Fresh(ctx)
	if err != nil {
		return err
	}
	err = i.Ready(ctx)
	if !errors.Is(err, ca.ErrNotConfigured) && !errors.Is(err, ca.ErrUnavailable) {
		return fmt.Errorf("it answers %w", orNone(err))
	}
	return nil
}

// connected returns the shared instance if it has a connection.
func (s *Session) connected() (*Instance, error) {
	i, err := s.Ready()
	if err == nil && i.Conn == nil {
		return nil, NotRun("a value has no protocol")
	}
	return i, err
}

// withMore adds a field that no protocol version defines.
func withMore[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 15999, protowire.BytesType), "from a later host"))
	return m
}

func unknownFields(ctx context.Context, s *Session) error {
	i, err := s.connected()
	if err != nil {
		return err
	}
	req, key, err := s.good()
	if err != nil {
		return err
	}
	in, err := wire.SignRequestToProto(req)
	if err != nil {
		return err
	}
	if _, err := providerv1.NewProviderClient(i.Conn).GetMetadata(ctx, withMore(&providerv1.GetMetadataRequest{})); err != nil {
		return fmt.Errorf("GetMetadata: %w", err)
	}
	if _, err := providerv1.NewProviderClient(i.Conn).Ready(ctx, withMore(&providerv1.ReadyRequest{})); err != nil {
		return fmt.Errorf("Ready: %w", err)
	}
	out, err := providerv1.NewCertificateAuthorityClient(i.Conn).CSRSign(ctx, withMore(in))
	if err != nil {
		return fmt.Errorf("CSRSign: %w", err)
	}
	return hasKey(ca.Certificate{Chain: out.GetChain()}, key)
}

func unknownMethod(ctx context.Context, s *Session) error {
	i, err := s.connected()
	if err != nil {
		return err
	}
	for _, method := range []string{"/countersign.provider.v1.Provider/FromALaterVersion", "/countersign.provider.v1.Later/Method"} {
		if err := i.Conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unimplemented {
			return fmt.Errorf("%s: %w", method, orNone(err))
		}
	}
	return worksOn(ctx, i)
}

func worksOn(ctx context.Context, i *Instance) error {
	if err := i.Ready(ctx); err != nil {
		return fmt.Errorf("after that: %w", err)
	}
	return nil
}

func healthServing(ctx context.Context, s *Session) error {
	i, err := s.connected()
	if err != nil {
		return err
	}
	out, err := healthv1.NewHealthClient(i.Conn).Check(ctx, &healthv1.HealthCheckRequest{Service: wire.HealthService})
	if err == nil && out.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("it says %s", out.GetStatus())
	}
	return err
}

func emptyRequest(ctx context.Context, s *Session) error {
	i, err := s.connected()
	if err != nil {
		return err
	}
	// With the token: a provider may authenticate before it looks at anything else.
	empty := &providerv1.CSRSignRequest{Token: s.Kit.Token.Reveal()}
	_, err = providerv1.NewCertificateAuthorityClient(i.Conn).CSRSign(ctx, empty)
	if status.Code(err) != codes.InvalidArgument {
		return fmt.Errorf("it answers %w", orNone(err))
	}
	return worksOn(ctx, i)
}

func hugeMessage(ctx context.Context, s *Session) error {
	i, err := s.connected()
	if err != nil {
		return err
	}
	req, _, err := s.good()
	if err != nil {
		return err
	}
	huge := &providerv1.CSRSignRequest{RequestId: req.ID, Token: req.Token.Reveal(), Csr: append(req.CSR, bytes.Repeat([]byte{'\n'}, wire.MaxMessage)...)}
	if _, err := providerv1.NewCertificateAuthorityClient(i.Conn).CSRSign(ctx, huge); err == nil {
		return fmt.Errorf("it took %d bytes", len(huge.GetCsr()))
	}
	return worksOn(ctx, i)
}

func errorInfoFits(ctx context.Context, s *Session) error {
	i, err := s.connected()
	if err != nil {
		return err
	}
	req, _, err := s.good()
	if err != nil {
		return err
	}
	nonsense := &providerv1.CSRSignRequest{RequestId: req.ID, Token: req.Token.Reveal(), Csr: nonsenseCSR()}
	_, err = providerv1.NewCertificateAuthorityClient(i.Conn).CSRSign(ctx, nonsense)
	st, _ := status.FromError(err)
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != wire.ErrorDomain {
			continue
		}
		// The status that both ends derive from the code alone.
		bare := status.Convert(wire.ToStatus(&ca.Error{Reason: ca.ReasonFor(wire.FromStatus(status.Error(st.Code(), "")))}))
		if word := wordOf(bare); !strings.EqualFold(word, info.GetReason()) {
			return fmt.Errorf("the status is %s and its reason %q; the table has %q", st.Code(), info.GetReason(), word)
		}
	}
	return nil
}

func wordOf(st *status.Status) string {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
