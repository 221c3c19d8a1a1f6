package provider

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/countersign-dev/countersign/internal/host/selfsigned"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// stockHost is a go-plugin host that passes no connection: the provider listens on a socket, with
// AutoMTLS if the host asks for it. go-plugin's own server is not linked, see decision 41.
func stockHost() (*host, error) {
	options, cert, err := stockCredentials([]byte(os.Getenv(wire.EnvClientCert)))
	if err != nil {
		return nil, err
	}
	listener, err := listenStock(os.Getenv(wire.EnvSocketDir))
	if err != nil {
		return nil, fmt.Errorf("failed to listen for the host: %w", err)
	}
	stdout, err := stdoutAside()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("move standard output: %w", err), listener.Close())
	}
	return &host{
		listener: listener, options: options, stdout: stdout, register: registerController,
		address: fmt.Sprintf("%s|%s|grpc|%s", listener.Addr().Network(), listener.Addr(), cert),
	}, nil
}

// stockCredentials returns how the provider and the host with this certificate (PEM) authenticate
// each other, and the provider's certificate for the handshake line. Without a certificate there is
// no TLS.
func stockCredentials(host []byte) (options []grpc.ServerOption, cert string, err error) {
	if len(host) == 0 {
		return nil, "", nil
	}
	certs, err := pki.ParseCertificates(host)
	if err != nil {
		return nil, "", fmt.Errorf("invalid %s: %w", wire.EnvClientCert, err)
	}
	pair, err := selfsigned.New()
	if err != nil {
		return nil, "", fmt.Errorf("failed to make a key for this start: %w", err)
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(pair.Accept(certs[0].Raw)))}, base64.RawStdEncoding.EncodeToString(pair.Cert()), nil
}

// listenStock opens a socket in the folder that the host named, for this user only.
func listenStock(folder string) (net.Listener, error) {
	if runtime.GOOS == "windows" {
		return net.Listen("tcp", "127.0.0.1:0") // as go-plugin does
	}
	if folder == "" {
		folder = os.TempDir()
	}
	path := filepath.Join(folder, "provider"+rand.Text()[:8])
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// registerController serves go-plugin's plugin.GRPCController, by which its hosts end a plugin. Its
// message has no fields.
func registerController(server *grpc.Server) {
	shutdown := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		none := new(emptypb.Empty)
		if err := decode(none); err != nil {
			return nil, err
		}
		go server.Stop() // it ends this call, too
		return none, nil
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "plugin.GRPCController", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Shutdown", Handler: shutdown}},
	}, nil)
}
