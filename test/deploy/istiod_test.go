//go:build e2e && linux

package deploy_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// istiod signs for who shows the token.
type istiod struct {
	security.UnimplementedIstioCertificateServiceServer
	mesh  *catest.CA
	token string
	port  string
}

func startIstiod(t *testing.T, token string) *istiod {
	t.Helper()
	i := &istiod{mesh: catest.NewCA(catest.Options{}), token: token}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, i.port, err = net.SplitHostPort(listener.Addr().String())
	must(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(i.pair(t, "", "istiod.istio-system.svc"))))
	security.Register(server, i)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); must(t, <-ended) })
	return i
}

// pair is a certificate of the mesh with its key, for a SPIFFE ID or DNS names.
func (i *istiod) pair(t *testing.T, id string, names ...string) *tls.Certificate {
	t.Helper()
	chain, key := i.files(t, id, names...)
	pair, err := tls.X509KeyPair(chain, key)
	must(t, err)
	return &pair
}

func (i *istiod) files(t *testing.T, id string, names ...string) (chain, key []byte) {
	t.Helper()
	return i.mesh.Pair(time.Hour, id, names...)
}

func (i *istiod) roots() []byte { return i.mesh.Bundle().PEM() }

// CreateCertificate signs with the root last, as istiod does.
func (i *istiod) CreateCertificate(ctx context.Context, req *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	if md, _ := metadata.FromIncomingContext(ctx); !slices.Contains(md.Get("authorization"), "Bearer "+i.token) {
		return nil, status.Error(codes.Unauthenticated, "no token of the pod's")
	}
	reply, err := i.mesh.CSRSign(ctx, ca.SignRequest{CSR: []byte(req.GetCsr()), TTL: time.Duration(req.GetValidityDuration()) * time.Second})
	if err != nil {
		return nil, err
	}
	return &security.IstioCertificateResponse{CertChain: []string{string(reply.Chain), string(reply.Roots)}}, nil
}
