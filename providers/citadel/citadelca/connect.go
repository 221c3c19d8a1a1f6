package citadelca

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	// connectTimeout leaves time for another try if the server does not respond.
	connectTimeout = 5 * time.Second
	// maxReply is a host's limit for a chain and its roots, in bytes.
	maxReply = 2 << 20
	// maxTrailer bounds the details of an error, in bytes.
	maxTrailer = 64 << 10
)

// attempt opens a connection, makes one call and closes the connection.
func (c *CA) attempt(ctx context.Context, req *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("dns:///"+c.endpoint.address,
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		// Otherwise DNS could configure retries and deadlines.
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxTrailer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%w", err)
	}
	defer conn.Close()
	reply, err := security.NewClient(conn).CreateCertificate(ctx, req)
	if tooLarge(err) {
		return nil, ca.Errorf(ca.Internal, "%s: the reply has more than %d bytes", c.endpoint.address, maxReply)
	}
	return reply, err
}

// tooLarge reports whether the reply exceeded maxReply. gRPC has one code for that and for a
// quota, but this error will not pass.
func tooLarge(err error) bool {
	st, _ := status.FromError(err)
	return st.Code() == codes.ResourceExhausted && strings.HasPrefix(st.Message(), "grpc: received message larger than max")
}

// transport reads the roots anew, so that a change needs no restart.
func (c *CA) transport() (credentials.TransportCredentials, error) {
	if c.endpoint.plaintext {
		return insecure.NewCredentials(), nil
	}
	config, err := setting.TLS{RootFile: c.settings.RootFile, ServerName: c.endpoint.serverName}.Config()
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "root_file: %w", err)
	}
	if c.settings.pair().IsSet() {
		config.GetClientCertificate = c.clientCertificate
	}
	return credentials.NewTLS(config), nil
}

// clientCertificate is called for each handshake. If the certificate cannot be used, it
// presents none, as the token may be enough.
func (c *CA) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := c.settings.pair().Read()
	if err != nil {
		c.log.Warn("client certificate not usable, sending the token only", "client_cert_file", c.settings.ClientCertFile, "error", err)
		return &tls.Certificate{}, nil
	}
	return pair, nil
}
