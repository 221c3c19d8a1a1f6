package exchange

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

const (
	maxRoots     = 1 << 20
	maxRedirects = 3
)

// transport is for one call, so that what its files hold is what counts.
func (c *Client) transport() (*http.Transport, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.config.RootFile != "" {
		roots, err := readRoots(c.config.RootFile)
		if err != nil {
			return nil, err
		}
		settings.RootCAs = roots
	}
	if auth := c.config.Auth; auth.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(auth.CertFile, auth.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate in %s: %w", auth.CertFile, err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10}, nil
}

func readRoots(path string) (*x509.CertPool, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxRoots))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return roots, nil
}

// errRedirect is a redirect that is not followed. It has nothing of the server's:
// its Location may repeat the token.
var errRedirect = errors.New("it redirects elsewhere")

// checkRedirect follows within the very same server, and only where the form goes
// with it: a token is for nobody else, and over plaintext for nobody.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case !strings.EqualFold(next.URL.Host, first.Host), next.URL.Scheme != first.Scheme:
		return fmt.Errorf("%w, to another server or another scheme, which gets no token", errRedirect)
	case next.Method != http.MethodPost:
		return fmt.Errorf("%w with a code that drops the request; 307 or 308 would keep it", errRedirect)
	case len(via) > maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	}
	return nil
}
