//go:build !linux

package inbound

import "net"

// pooled returns the connection as it is: gRPC pools buffers on Linux alone.
func pooled(c *conn) net.Conn { return c }
