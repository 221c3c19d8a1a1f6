package broker

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
)

// service implements the Broker API by the Workload API, which has the same replies.
type service struct {
	broker.UnimplementedAPIServer
	*Server
}

// SubscribeToX509SVID sends the workload's X.509-SVIDs, and again after each change.
func (s service) SubscribeToX509SVID(in *broker.SubscribeToX509SVIDRequest, to grpc.ServerStreamingServer[broker.SubscribeToX509SVIDResponse]) error {
	return s.serve(to.Context(), in.GetReference(), func(ctx context.Context, c *call) error {
		return s.api.FetchX509SVID(&workloadv1.X509SVIDRequest{}, relayed[workloadv1.X509SVIDResponse]{to, ctx, c, func(m *workloadv1.X509SVIDResponse) error {
			return to.Send(x509SVIDs(m))
		}})
	})
}

// SubscribeToX509Bundles sends the trust bundles that the workload verifies peers with, and again after
// each change.
func (s service) SubscribeToX509Bundles(in *broker.SubscribeToX509BundlesRequest, to grpc.ServerStreamingServer[broker.SubscribeToX509BundlesResponse]) error {
	return s.serve(to.Context(), in.GetReference(), func(ctx context.Context, c *call) error {
		return s.api.FetchX509Bundles(&workloadv1.X509BundlesRequest{}, relayed[workloadv1.X509BundlesResponse]{to, ctx, c, func(m *workloadv1.X509BundlesResponse) error {
			return to.Send(&broker.SubscribeToX509BundlesResponse{Crl: m.GetCrl(), Bundles: m.GetBundles()})
		}})
	})
}

// FetchJWTSVID returns JWT-SVIDs of the workload.
func (s service) FetchJWTSVID(ctx context.Context, in *broker.FetchJWTSVIDRequest) (out *broker.FetchJWTSVIDResponse, err error) {
	err = s.serve(ctx, in.GetReference(), func(ctx context.Context, c *call) error {
		got, err := s.api.FetchJWTSVID(ctx, &workloadv1.JWTSVIDRequest{Audience: in.GetAudience(), SpiffeId: in.GetSpiffeId()})
		if err != nil {
			return err
		}
		out = jwtSVIDs(got)
		return c.check()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SubscribeToJWTBundles sends the keys of JWT-SVIDs, and again after each change.
func (s service) SubscribeToJWTBundles(in *broker.SubscribeToJWTBundlesRequest, to grpc.ServerStreamingServer[broker.SubscribeToJWTBundlesResponse]) error {
	return s.serve(to.Context(), in.GetReference(), func(ctx context.Context, c *call) error {
		return s.api.FetchJWTBundles(&workloadv1.JWTBundlesRequest{}, relayed[workloadv1.JWTBundlesResponse]{to, ctx, c, func(m *workloadv1.JWTBundlesResponse) error {
			return to.Send(&broker.SubscribeToJWTBundlesResponse{Bundles: m.GetBundles()})
		}})
	})
}

func x509SVIDs(m *workloadv1.X509SVIDResponse) *broker.SubscribeToX509SVIDResponse {
	out := &broker.SubscribeToX509SVIDResponse{Crl: m.GetCrl(), FederatedBundles: m.GetFederatedBundles()}
	for _, svid := range m.GetSvids() {
		out.Svids = append(out.Svids, &broker.X509SVID{
			SpiffeId: svid.GetSpiffeId(), X509Svid: svid.GetX509Svid(), X509SvidKey: svid.GetX509SvidKey(), Bundle: svid.GetBundle(), Hint: svid.GetHint(),
		})
	}
	return out
}

func jwtSVIDs(m *workloadv1.JWTSVIDResponse) *broker.FetchJWTSVIDResponse {
	out := &broker.FetchJWTSVIDResponse{}
	for _, svid := range m.GetSvids() {
		out.Svids = append(out.Svids, &broker.JWTSVID{SpiffeId: svid.GetSpiffeId(), Svid: svid.GetSvid(), Hint: svid.GetHint()})
	}
	return out
}
