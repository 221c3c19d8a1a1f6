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

// verdict is how long a server that speaks HTTP/2 has to say that it has no SDS. It
// says so at once, and may as well say nothing: it was asked for nothing.
const verdict = 500 * time.Millisecond

// Probe tells who serves SDS at a unix socket, whoever it is: the connection is
// made, HTTP/2 is spoken, and a stream is opened on which nothing is asked for, as
// an answer could hold a key. A symlink is followed, as Envoy would.
//
// An error beside a peer is that it is no SDS server, or none that answers before
// ctx ends; without a peer, that nobody could be connected to.
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
	client, err := grpc.NewClient("passthrough:///sds", grpc.WithTransportCredentials(insecure.NewCredentials()),
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

// awaitReady returns when the server has sent HTTP/2's settings.
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

// opens tells whether the server has the service.
func opens(ctx context.Context, client *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, verdict)
	defer cancel()
	stream, err := secretv3.NewSecretDiscoveryServiceClient(client).StreamSecrets(ctx)
	if err == nil {
		_ = stream.CloseSend() // what came of it, Recv says
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
	return nil // it has the service, and refuses whoever asks for nothing
}
