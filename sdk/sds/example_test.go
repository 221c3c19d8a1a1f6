package sds_test

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Secrets on a gRPC server of one's own, which identifies its peers by their certificates.
func ExampleNewService() {
	var secrets secret.Source // a *secret.Manager, say
	server := grpc.NewServer( /* your credentials */ )
	service, err := sds.NewService(sds.ServiceConfig{
		Secrets: secrets,
		Admit: func(ctx context.Context) (secret.Caller, error) {
			from, ok := peer.FromContext(ctx)
			if !ok || from.AuthInfo == nil {
				return secret.Caller{}, status.Error(codes.Unauthenticated, "a client certificate is needed")
			}
			return secret.Caller{ID: "spiffe://example.org/web"}, nil // what package authn read from it
		},
	})
	if err != nil {
		panic(err)
	}
	service.Register(server)
}
