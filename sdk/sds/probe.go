package sds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// verdict is how long an HTTP/2 server has to report that it has no SDS. It reports
// that at once, while an SDS server may stay silent since nothing was requested.
const verdict = 500 * time.Millisecond

// Probe returns the peer that serves SDS on the unix socket at path. It connects,
// negotiates HTTP/2 and opens a stream but requests nothing, because an answer could
// contain a key. Like Envoy, it follows symlinks.
//
// An error with a peer means that the peer is not an SDS server or did not answer before
// ctx ended; an error without a peer means that the connection failed.
func Probe(ctx context.Context, path string) (*Peer, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	peer, err := unixpeer.Of(conn.(*net.UnixConn))
	if err != nil {
		return nil, fmt.Errorf("ask who listens: %w", err)
	}
	who := &peer
	client, err := grpc.NewClient("passthrough:///sds", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxHeaderListSize(64<<10),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }))
	if err != nil {
		return who, err
	}
	defer client.Close()
	if err := awaitReady(ctx, client); err != nil {
		return who, err
	}
	return who, opens(ctx, client)
}

// awaitReady returns once the server has sent its HTTP/2 settings.
func awaitReady(ctx context.Context, client *grpc.ClientConn) error {
	client.Connect()
	for {
		switch state := client.GetState(); {
		case state == connectivity.Ready:
			return nil
		case state == connectivity.TransientFailure:
			return errors.New("it does not speak HTTP/2")
		case !client.WaitForStateChange(ctx, state):
			return errors.New("it accepts connections and does not answer")
		}
	}
}

// opens returns an error if the server lacks the service.
func opens(ctx context.Context, client *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, verdict)
	defer cancel()
	stream, err := secretv3.NewSecretDiscoveryServiceClient(client).StreamSecrets(ctx)
	if err == nil {
		_ = stream.CloseSend() // Recv reports the outcome
		_, err = stream.Recv()
	}
	switch {
	case errors.Is(err, io.EOF), ctx.Err() != nil:
		return nil
	case status.Code(err) == codes.Unimplemented:
		return errors.New("it speaks gRPC and has no SDS")
	case status.Code(err) == codes.Unavailable:
		return errors.New("it closes the connection")
	}
	return nil // it has the service and rejects an empty request
}
