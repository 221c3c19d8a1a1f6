package cli

import (
	"errors"
	"net"
)

// Notify sends a message to the service manager at the socket, the variable NOTIFY_SOCKET; see
// sd_notify(3). Without a socket it does nothing.
func Notify(socket, message string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return errors.Join(err, conn.Close())
}
