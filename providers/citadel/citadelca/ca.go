// Package citadelca is istiod's certificate authority as a [ca.Client]: [Open]
// checks the settings, and each request goes to the gRPC service
// istio.v1.auth.IstioCertificateService, which istio-csr serves, too.
//
// Each attempt makes a connection of its own. istiod signs one identity for a
// caller, so requests come hours apart, and each sees the files as they are.
package citadelca

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1alpha1"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// patience ends a call whose caller set no deadline.
const patience = 30 * time.Second

// CA asks istiod. It holds no connection between two requests, has nothing to close
// and is safe for concurrent use.
type CA struct {
	settings Settings
	endpoint endpoint
	metadata metadata.MD
	log      *slog.Logger
}

// Open checks the settings; an error is of the reason [ca.Invalid]. The files that
// they name are read later, as they may come later.
func Open(settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	endpoint, err := settings.endpoint()
	if err != nil {
		return nil, err
	}
	if settings.RootFile == "" {
		settings.RootFile = DefaultRootFile
	}
	log := settings.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if endpoint.plaintext {
		log.Warn("the connection to the CA is plaintext: nobody is verified, and whoever is on the way can read and change what is said",
			"address", endpoint.address, "allow_token_over_plaintext", settings.AllowTokenOverPlaintext)
	}
	return &CA{settings: settings, endpoint: endpoint, metadata: settings.metadata(), log: log}, nil
}

// CSRSign implements [ca.Client]. The CSR must ask for one SPIFFE ID and nothing
// else, and a token is not sent over plaintext; both are [ca.Invalid], and nothing
// was sent then. What istiod answers has the reason of its code; a reply that is not
// a chain with its roots is [ca.Internal].
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if err := c.check(req); err != nil {
		return ca.Certificate{}, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	call := metadata.NewOutgoingContext(ctx, c.metadataOf(req.Token))
	reply, err := retry(ctx, func() (*security.IstioCertificateResponse, error) { return c.attempt(call, c.request(req)) })
	if err != nil {
		return ca.Certificate{}, c.failure(ctx, err, req.Token)
	}
	return certificateOf(reply.GetCertChain())
}

// check refuses what istiod would refuse, or what must not leave.
func (c *CA) check(req ca.SignRequest) error {
	if c.endpoint.plaintext && req.Token != "" && !c.settings.AllowTokenOverPlaintext {
		return ca.Errorf(ca.Invalid, "a token would go over plaintext to %s: use port 15012, or set allow_token_over_plaintext", c.endpoint.address)
	}
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	id, err := pki.IdentityOfCSR(csr)
	switch {
	case err != nil:
		return ca.Errorf(ca.Invalid, "the CSR: %w", err)
	case len(id.DNSNames)+len(id.IPAddresses)+len(req.DNSNames)+len(req.IPAddresses) > 0:
		return ca.Errorf(ca.Invalid, "istiod signs a SPIFFE ID alone: take the DNS names and IP addresses out of the secret, or have another provider sign it")
	case id.SPIFFEID == nil:
		return ca.Errorf(ca.Invalid, "istiod signs a SPIFFE ID, and the CSR has none")
	}
	return nil
}

func (c *CA) metadataOf(token ca.Token) metadata.MD {
	md := c.metadata.Copy()
	if token != "" {
		md.Set("authorization", "Bearer "+token.Reveal())
	}
	return md
}

func (c *CA) request(req ca.SignRequest) *security.IstioCertificateRequest {
	out := &security.IstioCertificateRequest{
		Csr: string(req.CSR),
		// Rounded up: zero would be istiod's default, a day.
		ValidityDuration: int64((req.TTL + time.Second - 1) / time.Second),
	}
	if c.settings.CertSigner != "" {
		out.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"CertSigner": structpb.NewStringValue(c.settings.CertSigner)}}
	}
	return out
}

// failure classifies what an attempt ended with, and says whose answer it is.
func (c *CA) failure(ctx context.Context, err error, token ca.Token) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if _, ours := errors.AsType[*ca.Error](err); ours {
		return err
	}
	upstream, ok := errors.AsType[*ca.Error](wire.FromUpstream(err, token))
	if !ok {
		return err
	}
	upstream.Message = c.endpoint.address + ": " + upstream.Message
	return upstream
}
