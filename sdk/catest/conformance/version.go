package conformance

import (
	"context"

	"google.golang.org/grpc"

	providerv2 "github.com/countersign-dev/countersign/proto/provider/v2"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// V2 returns the experimental second version of the protocol, which exists so that
// version negotiation is tested on every provider.
func V2() wire.Protocol {
	return wire.Protocol{
		Version: 2,
		Register: func(r grpc.ServiceRegistrar, signer ca.Client) {
			providerv2.RegisterCertificateAuthorityServer(r, serverV2{signer: signer})
		},
		Dial: func(conn grpc.ClientConnInterface) ca.Client {
			return clientV2{providerv2.NewCertificateAuthorityClient(conn)}
		},
	}
}

type serverV2 struct {
	providerv2.UnimplementedCertificateAuthorityServer
	signer ca.Client
}

func (s serverV2) CSRSign(ctx context.Context, in *providerv2.CSRSignRequest) (*providerv2.CSRSignResponse, error) {
	cert, err := wire.Sign(ctx, s.signer, in.GetRequest())
	if err != nil {
		return nil, err
	}
	return &providerv2.CSRSignResponse{Certificate: wire.CertificateToProto(cert)}, nil
}

type clientV2 struct {
	conn providerv2.CertificateAuthorityClient
}

func (c clientV2) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	in, err := wire.SignRequestToProto(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	out, err := c.conn.CSRSign(ctx, &providerv2.CSRSignRequest{Request: in})
	if err != nil {
		return ca.Certificate{}, err
	}
	return wire.CertificateFromProto(out.GetCertificate())
}
