package wire

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/internal/memory"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// RemoteOptions configure a [Remote]. The zero value is useful.
type RemoteOptions struct {
	// Protocol is the negotiated version. Default: [V1].
	Protocol Protocol
	// Timeout bounds calls whose context has no deadline, except watches. Default: 30
	// seconds.
	Timeout time.Duration
}

// Remote is a provider at the other end of a connection. It has nothing to close and is safe for
// concurrent use. Once a provider's metadata say that it serves a stream of requests, Remote opens one
// if two come within a second, which ends with the connection.
type Remote struct {
	timeout  time.Duration
	signer   ca.Client
	provider providerv1.ProviderClient
	roots    providerv1.RootSourceClient
	watcher  providerv1.RootWatcherClient
	tokens   providerv1.TokenExchangerClient
	renewals providerv1.RenewalInfoClient
	lists    providerv1.RevocationSourceClient
	jwts     providerv1.JwtSvidClient
	wits     providerv1.WitSvidClient
}

var _ Provider = (*Remote)(nil)

// NewRemote returns the client side over conn. Its calls set the message limits, so conn needs
// no options for them.
//
// Of the replies of all Remotes in a process, only so many bytes are received at once: an eighth of
// GOMEMLIMIT or of the memory limit of its cgroup, 24 to 64 MiB. A message of a stream of requests,
// of 512 KiB at most, does not count.
func NewRemote(conn grpc.ClientConnInterface, opts RemoteOptions) *Remote {
	return newRemote(memory.Process(), conn, opts)
}

func newRemote(within *memory.Budget, conn grpc.ClientConnInterface, opts RemoteOptions) *Remote {
	opts.Timeout = cmp.Or(opts.Timeout, 30*time.Second)
	if opts.Protocol.Version == 0 {
		opts.Protocol = V1()
	}
	conn = limited{conn, within.Share(room)}
	return &Remote{
		timeout:  opts.Timeout,
		signer:   opts.Protocol.Dial(conn),
		provider: providerv1.NewProviderClient(conn),
		roots:    providerv1.NewRootSourceClient(conn),
		watcher:  providerv1.NewRootWatcherClient(conn),
		tokens:   providerv1.NewTokenExchangerClient(conn),
		renewals: providerv1.NewRenewalInfoClient(conn),
		lists:    providerv1.NewRevocationSourceClient(conn),
		jwts:     providerv1.NewJwtSvidClient(conn),
		wits:     providerv1.NewWitSvidClient(conn),
	}
}

// withDeadline gives ctx a deadline if it has none.
func (r *Remote) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, r.timeout)
}

// Metadata implements [Provider]. Invalid metadata is [ca.ErrInternal].
func (r *Remote) Metadata(ctx context.Context) (Metadata, error) {
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.provider.GetMetadata(ctx, &providerv1.GetMetadataRequest{})
	if err != nil {
		return Metadata{}, failed(ctx, err, "")
	}
	md, err := metadataFromProto(out)
	if err != nil {
		return Metadata{}, &ca.Error{Reason: ca.Internal, Err: err}
	}
	if streaming, ok := r.signer.(interface{ announce(served bool) }); ok {
		streaming.announce(out.GetCsrSignStream())
	}
	return md, nil
}

// Validate implements [Provider]. It returns at most 64 diagnostics.
func (r *Remote) Validate(ctx context.Context, settings map[string]any) ([]Diagnostic, error) {
	out, err := r.validate(ctx, settings, false)
	return diagnosticsFromProto(out), err
}

// ValidateOnline implements [Provider].
func (r *Remote) ValidateOnline(ctx context.Context, settings map[string]any) ([]Diagnostic, error) {
	out, err := r.validate(ctx, settings, true)
	found := diagnosticsFromProto(out)
	if err == nil && !out.GetOnline() && !HasErrors(found) {
		err = ca.Errorf(ca.Unimplemented, "the provider has no online check")
	}
	return found, err
}

func (r *Remote) validate(ctx context.Context, settings map[string]any, online bool) (*providerv1.ValidateResponse, error) {
	in, err := settingsToProto(settings)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.provider.Validate(ctx, &providerv1.ValidateRequest{Settings: in, Online: online})
	return out, failed(ctx, err, "")
}

// Configure implements [Provider]. Settings are sent as JSON: numbers are IEEE 754 doubles.
func (r *Remote) Configure(ctx context.Context, settings map[string]any) error {
	in, err := settingsToProto(settings)
	if err != nil {
		return err
	}
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	_, err = r.provider.Configure(ctx, &providerv1.ConfigureRequest{Settings: in})
	return failed(ctx, err, "")
}

// Ready implements [Provider].
func (r *Remote) Ready(ctx context.Context) error {
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	_, err := r.provider.Ready(ctx, &providerv1.ReadyRequest{})
	return failed(ctx, err, "")
}

// CSRSign implements [ca.Client].
func (r *Remote) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	cert, err := r.signer.CSRSign(ctx, req)
	return cert, failed(ctx, err, req.Token)
}

// Roots implements [ca.RootSource].
func (r *Remote) Roots(ctx context.Context) ([]byte, error) {
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.roots.GetRoots(ctx, &providerv1.GetRootsRequest{})
	if err != nil {
		return nil, failed(ctx, err, "")
	}
	return out.GetRoots(), checkRoots(out.GetRoots())
}

// WatchRoots implements [ca.RootWatcher]. It passes on a set a second at most, the newest. If
// the provider ends the watch without an error, it returns [ca.ErrUnavailable].
func (r *Remote) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	return watch(ctx, r.watcher.WatchRoots, &providerv1.WatchRootsRequest{}, maxPEM, "its roots", func(out *providerv1.WatchRootsResponse) ([]byte, error) {
		return out.GetRoots(), checkRoots(out.GetRoots())
	}, changed)
}

// ExchangeToken implements [ca.TokenExchanger].
func (r *Remote) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	in, err := tokenRequestToProto(req)
	if err != nil {
		return ca.ExchangedToken{}, err
	}
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.tokens.ExchangeToken(ctx, in)
	if err != nil {
		return ca.ExchangedToken{}, failed(ctx, err, req.SubjectToken)
	}
	return exchangedFromProto(out)
}

// failed converts the error of a call.
func failed(ctx context.Context, err error, token ca.Token) error {
	return stillWanted(ctx, fromStatus(err, token))
}

// CertifiesNames implements [ca.NameCertifier] by the metadata.
func (r *Remote) CertifiesNames(ctx context.Context) error {
	m, err := r.Metadata(ctx)
	if err != nil {
		return err
	}
	return m.Lacks(NamesFromRequest)
}
