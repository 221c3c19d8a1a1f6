package conformance

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// The numbers of the calls that callsOnAStream makes.
const (
	goodCall  = 7
	emptyCall = 1 << 40
	laterCall = 8
)

// callsOnAStream makes a good call and one without a CSR at once, then another good one, and reads
// until there are three answers and the end.
func callsOnAStream(ctx context.Context, s *Session) error {
	i, err := s.connected()
	if err != nil {
		return err
	}
	described, err := providerv1.NewProviderClient(i.Conn).GetMetadata(ctx, &providerv1.GetMetadataRequest{})
	if err == nil && !described.GetCsrSignStream() {
		return NotRun("the provider serves no stream of calls")
	}
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
	answers, err := exchange(ctx, i, in)
	if err != nil {
		return err
	}
	for _, number := range []uint64{goodCall, laterCall} {
		if said := statusOf(answers[number]); said.Code() != codes.OK {
			return fmt.Errorf("the call %d is answered with the status %s: %s", number, said.Code(), said.Message())
		}
		if err := hasKey(ca.Certificate{Chain: answers[number].GetResponse().GetChain()}, key); err != nil {
			return fmt.Errorf("the call %d: %w", number, err)
		}
	}
	if said := statusOf(answers[emptyCall]); said.Code() != codes.InvalidArgument {
		return fmt.Errorf("the call without a CSR is answered with the status %s", said.Code())
	}
	return worksOn(ctx, i)
}

// statusOf returns the status of an answer: Unknown if it cannot be read.
func statusOf(answer *providerv1.CSRSignAnswer) *status.Status {
	said := &spb.Status{}
	if err := proto.Unmarshal(answer.GetStatus(), said); err != nil {
		return status.New(codes.Unknown, "the status cannot be decoded")
	}
	return status.FromProto(said)
}

// exchange returns the answers by number, each of which may come once.
func exchange(ctx context.Context, i *Instance, in *providerv1.CSRSignRequest) (map[uint64]*providerv1.CSRSignAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := providerv1.NewCertificateAuthorityStreamClient(i.Conn).CSRSignStream(ctx)
	if err != nil {
		return nil, err
	}
	empty := &providerv1.CSRSignRequest{Token: in.GetToken()}
	for _, calls := range [][]*providerv1.CSRSignCall{{{Number: goodCall, Request: in}, {Number: emptyCall, Request: empty}}, {{Number: laterCall, Request: in}}} {
		if err := stream.Send(&providerv1.CSRSignStreamRequest{Calls: calls}); err != nil {
			return nil, err
		}
	}
	answers := map[uint64]*providerv1.CSRSignAnswer{}
	for len(answers) < 3 {
		out, err := stream.Recv()
		if err != nil {
			return nil, fmt.Errorf("after %d of 3 answers: %w", len(answers), err)
		}
		for _, answer := range out.GetAnswers() {
			if answers[answer.GetNumber()] != nil {
				return nil, fmt.Errorf("it answers the call %d twice", answer.GetNumber())
			}
			answers[answer.GetNumber()] = answer
		}
	}
	return answers, nil
}
