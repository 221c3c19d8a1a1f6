package wire

import (
	"context"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxLists bounds the revocation lists of a provider, in bytes of PEM, as package pki does.
const maxLists = 3 << 20

// Revocations implements [ca.RevocationSource].
func (r *Remote) Revocations(ctx context.Context) ([]byte, error) {
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.lists.GetRevocations(ctx, &providerv1.GetRevocationsRequest{})
	if err != nil {
		return nil, failed(ctx, err, "")
	}
	return out.GetLists(), checkLists(out.GetLists())
}

// checkLists checks only the size: the caller has the CAs that may sign a list.
func checkLists(lists []byte) error {
	if len(lists) == 0 || len(lists) > maxLists {
		return ca.Errorf(ca.Internal, "the provider answered with %d bytes of revocation lists, want 1 to %d", len(lists), maxLists)
	}
	return nil
}

func (s *server) GetRevocations(ctx context.Context, _ *providerv1.GetRevocationsRequest) (*providerv1.GetRevocationsResponse, error) {
	lists, err := s.p.Revocations(ctx)
	if err == nil {
		err = checkLists(lists) // one that is too long would end as an error of the transport
	}
	if err != nil {
		return nil, ToStatus(err)
	}
	return &providerv1.GetRevocationsResponse{Lists: lists}, nil
}
