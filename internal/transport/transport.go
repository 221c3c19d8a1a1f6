// Package transport makes every [http.Transport] of this repository: [Outward] for servers that
// others run, [Local] for programs on this machine. A transport of its own would have no dial
// timeout, so that one dead address of a name keeps a client from all the others.
package transport

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

const (
	tlsTimeout  = 10 * time.Second
	idleTimeout = time.Minute
	// maxHeader bounds the header of a reply, in bytes; net/http's own bound is 10 MiB.
	maxHeader = 64 << 10
)

// Outward returns a transport that tries each address of a server's name and uses the proxy of
// the environment: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in either case. A nil config verifies
// servers with the roots of the operating system.
func Outward(config *tls.Config) *http.Transport {
	t := bounded()
	t.Proxy = http.ProxyFromEnvironment
	t.TLSClientConfig = config
	return t
}

// Local returns a transport that connects to one address of this machine, whatever host a request
// names, or to the host of the request if at is nil. It uses no proxy, which would reach the
// proxy's machine, and keeps no connection.
func Local(at net.Addr) *http.Transport {
	t := bounded()
	t.DisableKeepAlives = true
	if at != nil {
		dial := t.DialContext
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, at.Network(), at.String())
		}
	}
	return t
}

func bounded() *http.Transport {
	return &http.Transport{
		DialContext:            Dial,
		TLSHandshakeTimeout:    tlsTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
}
