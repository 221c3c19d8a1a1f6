package grpcsocket

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/peer"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/strangers"
)

// listener is a socket that reports why no client can connect.
type listener interface {
	net.Listener
	Err() error
}

// The limits of an address, which any program of the machine may reach.
const (
	maxOfAddress     = 1024
	unknownOfAddress = 256
)

// listen opens the unix socket, or the address.
func (c Config) listen() (listener, error) {
	if c.Address == "" {
		return unixsocket.Listen(c.Path, c.Mode, c.Log)
	}
	on, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, err
	}
	return bounded{&strangers.Listener{
		Listener: on, Places: strangers.NewPlaces(2*maxOfAddress, 2*maxOfAddress),
		Unknown: strangers.NewUnknown(unknownOfAddress, unknownOfAddress, c.Handshake), Full: func(net.Conn, error) {},
	}}, nil
}

// bounded is the listener of an address.
type bounded struct{ net.Listener }

// Err returns nil: an address that is listened on stays.
func (bounded) Err() error { return nil }

// Close closes the listener. gRPC does so, too.
func (b bounded) Close() error {
	if err := b.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// known lets the connection of a call last.
func known(ctx context.Context) {
	if remote, ok := peer.FromContext(ctx); ok {
		strangers.Known(remote.Addr)
	}
}
