package wire

import (
	"context"

	"google.golang.org/grpc"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// V1 is version 1 of the protocol.
func V1() Protocol {
	return Protocol{
		Version: 1,
		Register: func(r grpc.ServiceRegistrar, signer ca.Client) {
			providerv1.RegisterCertificateAuthorityServer(r, signerServer{signer: signer})
			providerv1.RegisterCertificateAuthorityStreamServer(r, callServer{signer: signer})
		},
		Dial: func(conn grpc.ClientConnInterface) ca.Client {
			return signerClient{
				providerv1.NewCertificateAuthorityClient(conn), &calls{authority: providerv1.NewCertificateAuthorityStreamClient(conn)},
			}
		},
		streams: true,
	}
}

type signerServer struct {
	providerv1.UnimplementedCertificateAuthorityServer
	signer ca.Client
}

func (s signerServer) CSRSign(ctx context.Context, in *providerv1.CSRSignRequest) (*providerv1.CSRSignResponse, error) {
	cert, err := Sign(ctx, s.signer, in)
	if err != nil {
		return nil, err
	}
	return CertificateToProto(cert), nil
}

// Sign has signer sign a request from the wire. Its error is a gRPC status whose text does not
// contain the request's token.
func Sign(ctx context.Context, signer ca.Client, in *providerv1.CSRSignRequest) (ca.Certificate, error) {
	req, err := SignRequestFromProto(in)
	if err != nil {
		return ca.Certificate{}, ToStatus(err)
	}
	cert, err := signer.CSRSign(ctx, req)
	return cert, toStatus(err, req.Token)
}

type signerClient struct {
	authority providerv1.CertificateAuthorityClient
	*calls
}

func (c signerClient) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	in, err := SignRequestToProto(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	out, made, err := c.sign(ctx, in)
	if !made {
		out, err = c.authority.CSRSign(ctx, in)
	}
	if err != nil {
		return ca.Certificate{}, err
	}
	return CertificateFromProto(out)
}
