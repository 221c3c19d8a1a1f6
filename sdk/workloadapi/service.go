package workloadapi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// ServiceConfig is what a [Service] is made of.
type ServiceConfig struct {
	Offer
	// Secrets are where what is offered comes from. Required.
	Secrets secret.Source
	// Admit returns who calls, or a status error that ends the call. Required.
	Admit func(context.Context) (secret.Caller, error)
	// Log never gets a key. Default: silent.
	Log *slog.Logger
}

// Service is the SPIFFE Workload API. Its methods may be called by any number of
// goroutines at once.
type Service struct {
	workloadv1.UnimplementedSpiffeWorkloadAPIServer
	offer     Offer
	foreign   []string // trust domains, sorted
	names     []string // of all secrets
	secrets   secret.Source
	admit     func(context.Context) (secret.Caller, error)
	log       *slog.Logger
	documents documents

	mu      sync.Mutex
	streams map[*stream]struct{}
	closed  bool
	ends    atomic.Int64 // how often End was called
}

// NewService returns a service that [Service.Register] puts on a gRPC server.
func NewService(cfg ServiceConfig) (*Service, error) {
	offer, err := cfg.checked()
	switch {
	case err != nil:
		return nil, err
	case cfg.Secrets == nil || cfg.Admit == nil:
		return nil, errors.New("workloadapi: ServiceConfig needs Secrets and Admit")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		offer: offer, foreign: slices.Sorted(maps.Keys(offer.Federated)), names: offer.names(),
		secrets: cfg.Secrets, admit: cfg.Admit, log: cfg.Log, streams: make(map[*stream]struct{}),
	}, nil
}

// Register puts the service on a gRPC server, by the name that the standard gives it.
func (s *Service) Register(on grpc.ServiceRegistrar) {
	desc := workloadv1.SpiffeWorkloadAPI_ServiceDesc
	desc.ServiceName = "SpiffeWorkloadAPI"
	on.RegisterService(&desc, s)
}

// FetchX509SVID sends the caller's identities, and again whenever they change.
func (s *Service) FetchX509SVID(_ *workloadv1.X509SVIDRequest, to grpc.ServerStreamingServer[workloadv1.X509SVIDResponse]) error {
	return s.follow(to.Context(), view.svidsVersion, func(v view) error { return to.Send(v.svids()) })
}

// FetchX509Bundles sends the roots of the caller's trust domains and of those that are
// federated, and again whenever they change.
func (s *Service) FetchX509Bundles(_ *workloadv1.X509BundlesRequest, to grpc.ServerStreamingServer[workloadv1.X509BundlesResponse]) error {
	return s.follow(to.Context(), view.bundlesVersion, func(v view) error { return to.Send(v.bundles()) })
}

// FetchJWTSVID ends with Unimplemented, as do the other calls for JWT-SVIDs.
func (s *Service) FetchJWTSVID(ctx context.Context, _ *workloadv1.JWTSVIDRequest) (*workloadv1.JWTSVIDResponse, error) {
	return nil, s.noJWT(ctx)
}

// FetchJWTBundles ends with Unimplemented.
func (s *Service) FetchJWTBundles(_ *workloadv1.JWTBundlesRequest, to grpc.ServerStreamingServer[workloadv1.JWTBundlesResponse]) error {
	return s.noJWT(to.Context())
}

// ValidateJWTSVID ends with Unimplemented.
func (s *Service) ValidateJWTSVID(ctx context.Context, _ *workloadv1.ValidateJWTSVIDRequest) (*workloadv1.ValidateJWTSVIDResponse, error) {
	return nil, s.noJWT(ctx)
}

func (s *Service) noJWT(ctx context.Context) error {
	if _, err := s.caller(ctx); err != nil {
		return err
	}
	return status.Error(codes.Unimplemented, "JWT-SVIDs are not offered here; X.509-SVIDs are")
}

// caller returns who calls. The header keeps out a browser or server that was talked
// into calling an address of an attacker's choice: it cannot set one (SPIFFE Workload
// Endpoint, section 3).
func (s *Service) caller(ctx context.Context) (secret.Caller, error) {
	if got := metadata.ValueFromIncomingContext(ctx, "workload.spiffe.io"); len(got) != 1 || got[0] != "true" {
		return secret.Caller{}, status.Error(codes.InvalidArgument, "the security header is missing: the metadata workload.spiffe.io must be true")
	}
	return s.admit(ctx)
}
