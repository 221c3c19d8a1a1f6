package citadelca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
	"github.com/countersign-dev/countersign/sdk/pki"
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
	roots, err := rootsOf(c.settings.RootFile)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "root_file: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: c.endpoint.serverName}
	if c.settings.ClientCertFile != "" {
		config.GetClientCertificate = c.clientCertificate
	}
	return credentials.NewTLS(config), nil
}

func rootsOf(path string) (*x509.CertPool, error) {
	if path == SystemRoots {
		return x509.SystemCertPool()
	}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	// No [pki.Bundle]: what is trusted here may be an intermediate.
	certs, err := pki.ParseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pool := x509.NewCertPool()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	return pool, nil
}

// clientCertificate is asked at each handshake. A certificate that cannot be used
// must not stand in the token's way: none is shown then.
func (c *CA) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := readPair(c.settings.ClientCertFile, c.settings.ClientKeyFile)
	if err != nil {
		c.log.Warn("the client certificate cannot be used: the CA gets the token alone", "client_cert_file", c.settings.ClientCertFile, "error", err)
		return &tls.Certificate{}, nil
	}
	return pair, nil
}

// readPair returns a pair that is not expired. Its errors quote nothing of the key.
func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	chain, err := readFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := readFile(keyFile)
	if err != nil {
		return nil, err
	}
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	signer, err := pki.ParseKey(key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	case !pki.SameKey(signer.Public(), certs[0].PublicKey):
		return nil, fmt.Errorf("%s is not the key of %s", keyFile, certFile)
	case time.Now().After(certs[0].NotAfter):
		return nil, errors.New("it expired at " + certs[0].NotAfter.UTC().Format(time.RFC3339))
	}
	pair := &tls.Certificate{PrivateKey: signer, Leaf: certs[0]}
	for _, cert := range certs {
		pair.Certificate = append(pair.Certificate, cert.Raw)
	}
	return pair, nil
}
