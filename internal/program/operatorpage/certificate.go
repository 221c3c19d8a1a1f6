package operatorpage

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
)

// Certificate is a TLS configuration that comes after the address was taken.
type Certificate struct{ current atomic.Pointer[tls.Config] }

// Take is the configuration from now on. Before, no handshake succeeds.
func (c *Certificate) Take(cfg *tls.Config) { c.current.Store(cfg) }

// Listen returns a listener whose connections speak TLS with it.
func (c *Certificate) Listen(on net.Listener) net.Listener {
	return tls.NewListener(on, &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if cfg := c.current.Load(); cfg != nil {
			return cfg, nil
		}
		return nil, errors.New("the program is starting")
	}})
}
