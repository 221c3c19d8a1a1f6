//go:build unix

package provider

import (
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// inherit takes over the descriptors, hides them from programs that the author starts, and
// moves standard output aside.
func inherit() (*host, error) {
	for _, fd := range []int{wire.LifelineFD, wire.ChannelFD} {
		unix.CloseOnExec(fd)
	}
	for _, name := range []string{wire.EnvChannelFD, wire.EnvLifelineFD, wire.EnvSocketDir, wire.EnvClientCert, wire.EnvVersions, wire.EnvBinary, wire.MagicCookieKey} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	stdout, err := stdoutAside()
	if err != nil {
		return nil, fmt.Errorf("move standard output: %w", err)
	}
	file := os.NewFile(wire.ChannelFD, "channel")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is not the host's channel: %w", wire.ChannelFD, err)
	}
	go func() {
		// The start-up data has keys for other transports: read and discarded.
		_, _ = io.Copy(io.Discard, os.NewFile(wire.LifelineFD, "lifeline"))
		os.Exit(0) // at once: the host is gone
	}()
	return &host{listener: newOneConn(conn), stdout: stdout, address: "unix|" + wire.ChannelAddress + "|grpc"}, nil
}
