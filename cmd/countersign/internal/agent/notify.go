package agent

import (
	"errors"
	"net"
)

// notifyReady notifies the service manager at the socket that the sockets serve; see
// sd_notify(3). Without a socket it does nothing.
func notifyReady(socket string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("READY=1"))
	return errors.Join(err, conn.Close())
}
