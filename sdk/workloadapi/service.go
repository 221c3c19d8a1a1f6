package workloadapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/internal/workload"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// ServiceConfig configures a [Service].
type ServiceConfig struct {
	Offer
	// Secrets supplies the offered secrets. Required.
	Secrets secret.Source
	// Admit returns the caller or a status error that ends the call. Required.
	Admit func(context.Context) (secret.Caller, error)
	// Callers gives each caller an identity of its own. Default: none, Admit decides what it gets.
	Callers *Callers
	// Header is the metadata that has to be "true" in each call. Default: workload.spiffe.io, that of the
	// Workload API.
	Header string
	// Log never receives a key. Default: [slog.Default].
	Log *slog.Logger
}

// Service implements the SPIFFE Workload API. Its methods are safe for concurrent use.
type Service struct {
	workloadv1.UnimplementedSpiffeWorkloadAPIServer
	offer     Offer
	foreign   []string // trust domains, sorted
	names     []string // of all secrets
	secrets   secret.Source
	admit     func(context.Context) (secret.Caller, error)
	callers   *callers // nil for none
	header    string
	log       *slog.Logger
	refused   *slog.Logger // for what callers can have logged
	repeats   loglimit.Repeats
	documents documents
	now       func() time.Time // the wall clock
	startup   clock.Startup    // in which first replies wait for foreign bundles

	mu      sync.Mutex
	streams map[*stream]struct{}
	calling map[string]*callerCalls // by the ID of a caller
	closed  bool
	ends    atomic.Int64 // number of calls of End
}

// NewService returns a service for [Service.Register], or an error if the configuration is invalid.
func NewService(cfg ServiceConfig) (*Service, error) {
	offer, err := cfg.checked()
	switch {
	case err != nil:
		return nil, err
	case cfg.Secrets == nil || cfg.Admit == nil:
		return nil, errors.New("workloadapi: ServiceConfig needs Secrets and Admit")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	s := &Service{
		offer: offer, foreign: slices.Sorted(maps.Keys(offer.Federated)), names: offer.names(),
		secrets: cfg.Secrets, admit: cfg.Admit, header: cmp.Or(cfg.Header, "workload.spiffe.io"), log: cfg.Log, refused: loglimit.Limit(cfg.Log), streams: make(map[*stream]struct{}), calling: make(map[string]*callerCalls),
		now: clock.Wall, startup: clock.BeginStartup(),
	}
	if cfg.Callers != nil {
		s.callers, s.admit = &callers{*cfg.Callers, cfg.Admit, s}, workload.Admit
	}
	return s, cfg.Callers.check()
}

// Register registers the service on a gRPC server under its standard name.
func (s *Service) Register(on grpc.ServiceRegistrar) {
	desc := workloadv1.SpiffeWorkloadAPI_ServiceDesc
	desc.ServiceName = "SpiffeWorkloadAPI"
	if s.callers != nil {
		desc = workload.Calls(desc, s.callers.serve)
	}
	on.RegisterService(&desc, s)
	if describer, ok := on.(interface {
		Describe(file func() *descriptorpb.FileDescriptorProto)
	}); ok {
		describer.Describe(standardFile)
	}
}

// FetchX509SVID sends the caller's X.509-SVIDs, and again after each change.
func (s *Service) FetchX509SVID(_ *workloadv1.X509SVIDRequest, to grpc.ServerStreamingServer[workloadv1.X509SVIDResponse]) error {
	return s.follow(to.Context(), view.svidsVersion, view.hasForeignRoots, func(v view) error { return to.Send(v.svids()) })
}

// FetchX509Bundles sends the trust bundles of the caller's own and of federated trust
// domains, and again after each change. They need no certificate where
// [Identity].TrustDomain is set.
func (s *Service) FetchX509Bundles(_ *workloadv1.X509BundlesRequest, to grpc.ServerStreamingServer[workloadv1.X509BundlesResponse]) error {
	return s.follow(to.Context(), view.bundlesVersion, view.hasForeignRoots, func(v view) error { return to.Send(v.x509Bundles()) })
}

// caller returns the caller. The required header stops server-side request forgery: a
// browser or server tricked into calling this address cannot set it (SPIFFE Workload
// Endpoint, section 3).
func (s *Service) caller(ctx context.Context) (secret.Caller, error) {
	if got := metadata.ValueFromIncomingContext(ctx, s.header); len(got) != 1 || got[0] != "true" {
		return secret.Caller{}, status.Errorf(codes.InvalidArgument, "the security header is missing: the metadata %s must be true", s.header)
	}
	return s.admit(ctx)
}
