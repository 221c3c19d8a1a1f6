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
	security "istio.io/api/security/v1alpha1"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	// connectTimeout leaves time for another try where nobody answers.
	connectTimeout = 5 * time.Second
	// maxReply is what a host takes of a chain and of roots together.
	maxReply = 2 << 20
	// maxTrailer bounds what comes with an error.
	maxTrailer = 64 << 10
)

// attempt makes a connection, one call, and closes it.
func (c *CA) attempt(ctx context.Context, req *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("dns:///"+c.endpoint.address,
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		// Whoever answers for DNS would else have a say in retries and deadlines.
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxTrailer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%w", err)
	}
	defer conn.Close()
	reply, err := security.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, req)
	if tooLarge(err) {
		return nil, ca.Errorf(ca.Internal, "%s: the reply has more than %d bytes", c.endpoint.address, maxReply)
	}
	return reply, err
}

// tooLarge: gRPC has one code for a quota and for a message that is not taken, which
// would be as large the next time.
func tooLarge(err error) bool {
	st, _ := status.FromError(err)
	return st.Code() == codes.ResourceExhausted && strings.HasPrefix(st.Message(), "grpc: received message larger than max")
}

// transport reads the roots anew, so that a changed one needs no restart.
func (c *CA) transport() (credentials.TransportCredentials, error) {
	if c.endpoint.plaintext {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.endpoint.serverName}
	if roots := rest.RootFile(c.settings.RootFile); roots != nil {
		var err error
		if config.RootCAs, err = roots(); err != nil {
			return nil, ca.Errorf(ca.Unavailable, "root_file: %w", err)
		}
	}
	if c.settings.ClientCertFile != "" {
		config.GetClientCertificate = c.clientCertificate
	}
	return credentials.NewTLS(config), nil
}

// clientCertificate is asked at each handshake. A certificate that cannot be used
// must not stand in the token's way: none is shown then.
func (c *CA) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := rest.Pair{CertFile: c.settings.ClientCertFile, KeyFile: c.settings.ClientKeyFile}.Read(time.Now())
	if err != nil {
		c.log.Warn("the client certificate cannot be used: the CA gets the token alone", "client_cert_file", c.settings.ClientCertFile, "error", err)
		return &tls.Certificate{}, nil
	}
	return pair, nil
}
