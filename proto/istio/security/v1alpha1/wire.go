// Package securityv1alpha1 is the API of istiod's CA, under names of its own.
package securityv1alpha1

import (
	"context"

	"google.golang.org/grpc"
)

// The names on the wire, which are those of Istio's package.
const (
	ServiceName = "istio.v1.auth.IstioCertificateService"
	Method      = "/" + ServiceName + "/CreateCertificate"
)

// NewClient returns a client of Istio's CA API.
func NewClient(conn grpc.ClientConnInterface) IstioCertificateServiceClient { return client{conn} }

type client struct{ conn grpc.ClientConnInterface }

// CreateCertificate implements [IstioCertificateServiceClient].
func (c client) CreateCertificate(ctx context.Context, in *IstioCertificateRequest, opts ...grpc.CallOption) (*IstioCertificateResponse, error) {
	out := &IstioCertificateResponse{}
	if err := c.conn.Invoke(ctx, Method, in, out, opts...); err != nil {
		return nil, err
	}
	return out, nil
}

// Register serves Istio's CA API.
func Register(to grpc.ServiceRegistrar, server IstioCertificateServiceServer) {
	desc := IstioCertificateService_ServiceDesc
	desc.ServiceName = ServiceName
	to.RegisterService(&desc, server)
}
