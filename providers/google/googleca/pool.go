package googleca

import (
	"context"
	"crypto/x509"
	"encoding/pem"
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
	// defaultTTL is what is asked for where nobody said: the service needs a lifetime.
	defaultTTL = 24 * time.Hour
	// maxReply is what a host takes of a chain and of roots together.
	maxReply = 2 << 20
	// idPrefix tells whose certificates those are, in the service's lists.
	idPrefix = "countersign-"
)

// pool is a pool of CAs of the Certificate Authority Service.
type pool struct {
	settings Settings
	client   *privateca.CertificateAuthorityClient
	interval time.Duration
	log      *slog.Logger
	rootState
}

func newPool(ctx context.Context, settings Settings, opts []option.ClientOption) (*pool, error) {
	interval, err := settings.RootsInterval.parse()
	if err != nil {
		return nil, err
	}
	options, err := clientOptions(settings)
	if err != nil {
		return nil, err
	}
	// What the library keeps of the context is used as long as the client.
	client, err := privateca.NewCertificateAuthorityClient(context.WithoutCancel(ctx), append(options, opts...)...)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "%s: the client cannot be made: %w", settings.CAPool, err)
	}
	// The library's own retries would multiply those of the host, who has the table
	// that says which errors are tried again, and when.
	client.CallOptions = &privateca.CertificateAuthorityCallOptions{}
	return &pool{settings: settings, client: client, interval: interval, log: settings.Log, rootState: newRootState()}, nil
}

// callOptions are those of each call; token is what it is made with where the
// connection has no credentials.
func (p *pool) callOptions(token ca.Token) gax.CallOption {
	// The library takes messages of 2 GiB.
	opts := []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxReply)}
	if token != "" {
		opts = append(opts, grpc.PerRPCCredentials(bearer{token, p.settings.QuotaProject}))
	}
	return gax.WithGRPCOptions(opts...)
}

// sign orders a certificate. The pool may have made it before, for an earlier try:
// within the hour it answers with that by the request's ID, and later it says that
// the name is taken.
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

// order is the same for each try of a request.
func (p *pool) order(req ca.SignRequest) (*privatecapb.CreateCertificateRequest, error) {
	ttl := req.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	cert := &privatecapb.Certificate{
		Lifetime: durationpb.New(seconds(ttl)), CertificateTemplate: p.settings.CertificateTemplate, Labels: p.settings.Labels,
		CertificateConfig: &privatecapb.Certificate_PemCsr{PemCsr: string(req.CSR)},
	}
	if p.settings.SubjectMode == ReflectedSPIFFE {
		config, err := reflected(req.CSR)
		if err != nil {
			return nil, err
		}
		cert.SubjectMode = privatecapb.SubjectRequestMode_REFLECTED_SPIFFE
		cert.CertificateConfig = &privatecapb.Certificate_Config{Config: config}
	}
	return &privatecapb.CreateCertificateRequest{
		Parent: p.settings.CAPool, CertificateId: idPrefix + strings.ToLower(req.ID), RequestId: req.ID,
		Certificate: cert, IssuingCertificateAuthorityId: p.settings.IssuingCA,
	}, nil
}

// reflected asks for the CSR's key under the name that the service knows its caller
// by, for TLS servers and clients.
func reflected(csrPEM []byte) (*privatecapb.CertificateConfig, error) {
	csr, err := pki.ParseCSR(csrPEM)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	_, rsa := csr.PublicKey.(interface{ Size() int })
	isCA := false
	return &privatecapb.CertificateConfig{
		PublicKey: &privatecapb.PublicKey{
			Format: privatecapb.PublicKey_PEM,
			Key:    pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: csr.RawSubjectPublicKeyInfo}),
		},
		SubjectConfig: &privatecapb.CertificateConfig_SubjectConfig{Subject: &privatecapb.Subject{}},
		X509Config: &privatecapb.X509Parameters{
			CaOptions: &privatecapb.X509Parameters_CaOptions{IsCa: &isCA},
			KeyUsage: &privatecapb.KeyUsage{
				BaseKeyUsage:     &privatecapb.KeyUsage_KeyUsageOptions{DigitalSignature: true, KeyEncipherment: rsa},
				ExtendedKeyUsage: &privatecapb.KeyUsage_ExtendedKeyUsageOptions{ServerAuth: true, ClientAuth: true},
			},
		},
	}, nil
}

// certificateOf reads the leaf and what is above it up to the root, which comes out
// beside the chain. What the leaf says is the host's to check.
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
		// The pool's roots tell where this leads to.
		return ca.Certificate{Chain: pki.EncodeCertificates(chain)}, nil
	}
	if chain = slices.DeleteFunc(chain, root.Contains); len(chain) == 0 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: the reply has a root and no leaf", p.settings.CAPool)
	}
	p.met(last)
	return ca.Certificate{Chain: pki.EncodeCertificates(chain), Roots: root.PEM()}, nil
}

// rootOf returns the certificate as a set of roots, empty where it is none.
func rootOf(cert *x509.Certificate) *pki.Bundle {
	root, err := pki.ParseBundle(pki.EncodeCertificates([]*x509.Certificate{cert}))
	if err != nil {
		return nil
	}
	return root
}
