// Package citadelca is a client of istiod's certificate authority as a [ca.Client]. It calls
// the gRPC service istio.v1.auth.IstioCertificateService, which istio-csr serves, too.
// countersign-provider-citadel serves it as a process; call [Open] to use it in another
// program.
//
// Each attempt opens its own connection and reads the files anew: istiod signs one identity
// for each caller, so requests are hours apart. There is no goroutine and no state between
// two requests.
package citadelca

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// patience bounds a call whose caller set no deadline.
const patience = 30 * time.Second

// CA calls istiod. It has nothing to close and is safe for concurrent use.
type CA struct {
	settings Settings
	endpoint endpoint
	metadata metadata.MD
	log      *slog.Logger
}

// Open checks the settings. An error has the reason [ca.Invalid]. The files are read with each
// request, as they may not exist yet.
func Open(settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	endpoint, err := settings.endpoint()
	if err != nil {
		return nil, err
	}
	settings.RootFile = cmp.Or(settings.RootFile, DefaultRootFile)
	log := cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	if endpoint.plaintext {
		log.Warn("plaintext connection to the CA: neither side is verified, and anyone on the network can read and change the traffic",
			"address", endpoint.address, "allow_token_over_plaintext", settings.AllowTokenOverPlaintext)
	}
	return &CA{settings: settings, endpoint: endpoint, metadata: settings.metadata(), log: log}, nil
}

// CSRSign implements [ca.Client]. It fails with [ca.Invalid], before anything is sent, if the
// CSR has other names than one SPIFFE ID, or a token would be sent over plaintext. An error
// of istiod has the reason of its gRPC code; a reply without a valid chain and roots is
// [ca.Internal]. CSRSign asks once: the host has a backoff, and retries here would multiply
// with its own.
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
	reply, err := c.attempt(call, c.request(req))
	if err != nil {
		return ca.Certificate{}, c.failure(ctx, err, req.Token)
	}
	return certificateOf(reply.GetCertChain())
}

// check refuses what istiod would refuse, and what must not be sent.
func (c *CA) check(req ca.SignRequest) error {
	if c.endpoint.plaintext && req.Token != "" && !c.settings.AllowTokenOverPlaintext {
		return ca.Errorf(ca.Invalid, "the token would be sent in plaintext to %s: use port 15012, or set allow_token_over_plaintext", c.endpoint.address)
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
		return ca.Errorf(ca.Invalid, "istiod signs nothing but a SPIFFE ID: remove the DNS names and IP addresses from the secret, or use another provider")
	case id.SPIFFEID == nil:
		return ca.Errorf(ca.Invalid, "istiod signs a SPIFFE ID, but the CSR has none")
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
		// Rounded up: 0 would mean istiod's default of a day.
		ValidityDuration: int64((req.TTL + time.Second - 1) / time.Second),
	}
	if c.settings.CertSigner != "" {
		out.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"CertSigner": structpb.NewStringValue(c.settings.CertSigner)}}
	}
	return out
}

// failure maps the error of the last attempt and names the server in it.
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
