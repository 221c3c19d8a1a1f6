package provider

import (
	"crypto/tls"
	"net/http"

	"github.com/countersign-dev/countersign/internal/transport"
)

// NewTransport returns a transport to an authority, for an [http.Client] or a library that takes
// one: it tries each address of the authority's name, uses the proxy of the environment, and
// bounds a reply's header to 64 KiB. A nil config verifies the authority with the roots of the
// operating system. The caller may change the transport before its first request. Package rest
// has a client that bounds whole calls.
func NewTransport(config *tls.Config) *http.Transport { return transport.Outward(config) }
