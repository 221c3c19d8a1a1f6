// Package endpoint asks one HTTPS server of somebody else's: [Client.Do] has a
// deadline, a bounded body, and goes nowhere but to that server.
package endpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	defaultTimeout = 10 * time.Second
	maxRoots       = 1 << 20
	maxRedirects   = 3
)

// Options tune a [Client].
type Options struct {
	// RootFile holds the roots (PEM) that the server is verified with. It is read for
	// each request, as it may be replaced. Default: the system's.
	RootFile string
	// TLS returns the TLS settings instead, for a server that is verified otherwise.
	// Default: none.
	TLS func() *tls.Config
	// Transport asks instead, with TLS settings of its own; [Client.Close] leaves it as
	// it is. Default: none.
	Transport http.RoundTripper
	// MaxBody is the number of bytes of a reply that is taken. Default: 1 MiB.
	MaxBody int64
	// Timeout ends a request. Default: 10 seconds.
	Timeout time.Duration
	// KeepAlive keeps connections for the next request; [Client.Close] ends them.
	// Default: a connection for each request.
	KeepAlive bool
}

// Client asks servers. It is safe for concurrent use.
type Client struct {
	Options

	mu        sync.Mutex
	transport *http.Transport   // nil before the first request
	roots     [sha256.Size]byte // of the root file that transport was made with
}

// New returns a client. Nothing is read or asked yet.
func New(opts Options) *Client {
	if opts.MaxBody == 0 {
		opts.MaxBody = 1 << 20
	}
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	return &Client{Options: opts}
}

// Reply is what a server answered, read whole.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a request with an optional body and returns the reply, whatever its
// status is. A redirect is followed for GET only, and only within the server. An
// error may quote the server, as its certificate; it holds nothing of what was sent.
func (c *Client) Do(ctx context.Context, method, address string, header http.Header, body []byte) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	transport, err := c.chosen()
	if err != nil {
		return Reply{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	maps.Copy(req.Header, header)
	client := &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	resp, err := client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return Reply{}, failed.Err // its URL may be one that the server has redirected to
	}
	if err != nil {
		return Reply{}, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	return c.read(resp)
}

func (c *Client) read(resp *http.Response) (Reply, error) {
	content, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxBody+1))
	switch {
	case err != nil:
		return Reply{}, fmt.Errorf("read the reply: %w", err)
	case int64(len(content)) > c.MaxBody:
		return Reply{}, fmt.Errorf("the reply has more than %d bytes", c.MaxBody)
	}
	return Reply{resp.StatusCode, resp.Header, content}, nil
}

// errRedirect has nothing of the server's: its Location may repeat a token.
var errRedirect = errors.New("it redirects elsewhere")

func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case first.Method != http.MethodGet:
		return fmt.Errorf("%w, which a %s does not follow", errRedirect, first.Method)
	case !strings.EqualFold(next.URL.Host, first.URL.Host), next.URL.Scheme != first.URL.Scheme:
		return fmt.Errorf("%w, to another server or another scheme", errRedirect)
	case len(via) > maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	}
	return nil
}

func (c *Client) chosen() (http.RoundTripper, error) {
	if c.Transport != nil {
		return c.Transport, nil
	}
	return c.roundTripper()
}

// roundTripper returns the transport, a new one where the roots have changed.
func (c *Client) roundTripper() (*http.Transport, error) {
	content, err := c.readRoots()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := sha256.Sum256(content)
	if c.transport != nil && c.roots == sum {
		return c.transport, nil
	}
	settings, err := c.settings(content)
	if err != nil {
		return nil, err
	}
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	// No Proxy: what the environment says is for main to read.
	c.transport = &http.Transport{
		TLSClientConfig:        settings,
		DisableKeepAlives:      !c.KeepAlive,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 16 << 10,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        time.Minute,
	}
	c.roots = sum
	return c.transport, nil
}

func (c *Client) settings(roots []byte) (*tls.Config, error) {
	if c.TLS != nil {
		return c.TLS(), nil
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.RootFile != "" {
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(roots) {
			return nil, fmt.Errorf("%s has no certificate in PEM", c.RootFile)
		}
	}
	return settings, nil
}

func (c *Client) readRoots() ([]byte, error) {
	if c.RootFile == "" {
		return nil, nil
	}
	file, err := os.Open(c.RootFile)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxRoots+1))
	if err == nil && len(content) > maxRoots {
		err = fmt.Errorf("%s has more than %d bytes", c.RootFile, maxRoots)
	}
	return content, err
}

// Close ends the connections that are kept.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}
