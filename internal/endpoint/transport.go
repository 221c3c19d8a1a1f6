package endpoint

import (
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/transport"
)

// sharedTransport is the transport, and with it the connections that are kept.
type sharedTransport struct {
	mu    sync.Mutex
	last  *http.Transport   // nil before the first request
	roots [sha256.Size]byte // of the root file that it was made with
}

// transport returns what a request is sent by, a new one where the roots have changed.
func (c *Client) transport() (http.RoundTripper, error) {
	if c.Transport != nil {
		return c.Transport, nil
	}
	var roots []byte
	if c.RootFile != "" {
		var err error
		if roots, err = safefile.Read(c.RootFile, maxFile); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := sha256.Sum256(roots)
	if c.last != nil && c.roots == sum {
		return c.last, nil
	}
	fresh, err := c.newTransport(roots)
	if err != nil {
		return nil, err
	}
	if c.last != nil {
		c.last.CloseIdleConnections()
	}
	c.last, c.roots = fresh, sum
	return fresh, nil
}

func (c *Client) newTransport(roots []byte) (*http.Transport, error) {
	settings, err := c.settings(roots)
	if err != nil {
		return nil, err
	}
	t := transport.Outward(settings)
	t.Proxy, t.DisableKeepAlives = c.Proxy, !c.KeepAlive
	return t, nil
}

func (c *Client) settings(roots []byte) (*tls.Config, error) {
	if c.TLS != nil {
		return c.TLS(), nil
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CertFile != "" {
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return ReadPair(c.CertFile, c.KeyFile, time.Now())
		}
	}
	if c.RootFile == "" {
		return settings, nil
	}
	var err error
	settings.RootCAs, err = parseRoots(c.RootFile, roots)
	return settings, err
}

// Close ends the connections that are kept.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		c.last.CloseIdleConnections()
	}
}
