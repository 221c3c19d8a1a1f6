package googleca

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"slices"
	"strings"
	"time"

	privateca "cloud.google.com/go/security/privateca/apiv1"
	"cloud.google.com/go/security/privateca/apiv1/privatecapb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// defaultTTL is requested where a request has no TTL: the service requires a lifetime.
	defaultTTL = 24 * time.Hour
	// maxReply is a host's limit for a chain and its roots, in bytes.
	maxReply = 2 << 20
	// idPrefix marks Countersign's certificates in the service's lists.
	idPrefix = "countersign-"
)

// pool is a client of a CA pool of the Certificate Authority Service.
type pool struct {
	settings Settings
	client   *privateca.CertificateAuthorityClient
	interval time.Duration
	log      *slog.Logger
	rootState
}

func newPool(ctx context.Context, settings Settings, opts []option.ClientOption) (*pool, error) {
	options, err := clientOptions(settings)
	if err != nil {
		return nil, err
	}
	// The library keeps the context as long as the client.
	client, err := privateca.NewCertificateAuthorityClient(context.WithoutCancel(ctx), append(options, opts...)...)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "%s: create the client: %w", settings.CAPool, err)
	}
	// The library's own retries would multiply the host's.
	client.CallOptions = &privateca.CertificateAuthorityCallOptions{}
	return &pool{settings: settings, client: client, interval: cmp.Or(settings.RootsInterval, defaultInterval), log: settings.Log, rootState: newRootState()}, nil
}

// callOptions returns the options of a call. token is its credential where the connection has
// none.
func (p *pool) callOptions(token ca.Token) gax.CallOption {
	// The library accepts messages of 2 GiB.
	opts := []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxReply)}
	if token != "" {
		opts = append(opts, grpc.PerRPCCredentials(bearer{token, p.settings.QuotaProject}))
	}
	return gax.WithGRPCOptions(opts...)
}

// sign requests a certificate. The pool may have issued it for an earlier try: within an hour
// it returns that certificate for the same request ID, and later it reports that the name
// exists.
func (p *pool) sign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	order, err := p.order(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	if p.settings.Credentials == Token {
		p.came(req.Token)
	}
	opts := p.callOptions(req.Token)
	made, err := p.client.CreateCertificate(ctx, order, opts)
	if status.Code(err) == codes.AlreadyExists {
		before, missing := p.client.GetCertificate(ctx, &privatecapb.GetCertificateRequest{Name: p.settings.CAPool + "/certificates/" + order.CertificateId}, opts)
		if missing == nil {
			made, err = before, nil
		}
	}
	if err != nil {
		return ca.Certificate{}, err
	}
	return p.certificateOf(made)
}

// order returns the service's request, which is the same for each try of req.
func (p *pool) order(req ca.SignRequest) (*privatecapb.CreateCertificateRequest, error) {
	ttl := cmp.Or(req.TTL, defaultTTL)
	names, repeated, err := namesOf(req)
	if err != nil {
		return nil, err
	}
	cert := &privatecapb.Certificate{
		Lifetime: durationpb.New(seconds(ttl)), CertificateTemplate: p.settings.CertificateTemplate, Labels: p.settings.Labels,
		CertificateConfig: &privatecapb.Certificate_PemCsr{PemCsr: string(req.CSR)},
	}
	if p.settings.SubjectMode == ReflectedSPIFFE {
		cert.SubjectMode, names, repeated = privatecapb.SubjectRequestMode_REFLECTED_SPIFFE, pki.Identity{}, false
	}
	if !repeated { // a pool that signs CSRs alone goes on signing an agent's
		config, err := configured(req.CSR, names)
		if err != nil {
			return nil, err
		}
		cert.CertificateConfig = &privatecapb.Certificate_Config{Config: config}
	}
	return &privatecapb.CreateCertificateRequest{
		Parent: p.settings.CAPool, CertificateId: idPrefix + strings.ToLower(req.ID), RequestId: req.ID,
		Certificate: cert, IssuingCertificateAuthorityId: p.settings.IssuingCA,
	}, nil
}

// certificateOf reads the leaf and its chain up to the root, which it returns apart from the
// chain. The host verifies the leaf.
func (p *pool) certificateOf(made *privatecapb.Certificate) (ca.Certificate, error) {
	leaf, err := pki.ParseCertificates([]byte(made.GetPemCertificate()))
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: the reply's pem_certificate: %w", p.settings.CAPool, err)
	}
	chain := leaf
	for i, text := range made.GetPemCertificateChain() {
		above, err := pki.ParseCertificates([]byte(text))
		if err != nil {
			return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: element %d of the reply's pem_certificate_chain: %w", p.settings.CAPool, i+1, err)
		}
		chain = append(chain, above...)
	}
	last := chain[len(chain)-1]
	root := rootOf(last)
	if root.Len() == 0 {
		// The pool's roots will verify the chain.
		return ca.Certificate{Chain: pki.EncodeCertificates(chain)}, nil
	}
	if chain = slices.DeleteFunc(chain, root.Contains); len(chain) == 0 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: the reply has a root and no leaf", p.settings.CAPool)
	}
	p.met(last)
	return ca.Certificate{Chain: pki.EncodeCertificates(chain), Roots: root.PEM()}, nil
}

// rootOf returns the certificate as a bundle, which is empty if it is not a root.
func rootOf(cert *x509.Certificate) *pki.Bundle {
	root, err := pki.ParseBundle(pki.EncodeCertificates([]*x509.Certificate{cert}))
	if err != nil {
		return nil
	}
	return root
}
