// Package endpoint calls one HTTPS server: [Client.Do] has a deadline and a bounded body, and
// connects to no other server. All HTTPS clients here use it: sdk/provider/rest for authorities,
// sdk/token/exchange and google's for token services, sdk/authn for keys, bundles and API
// servers.
//
// What stays with those is what an answer means, but for authorities' ([Reason]), which two
// packages share. A status of 403 is an authority's no,
// a token service's no to a credential, and an API server's no to ourselves; each has a
// table of its own, and its own words. So has each its rule of what URL it takes: an
// authority's has no query as paths are put behind it, a token service's may have one,
// and plain HTTP goes to a loopback address where it carries a token, also to the name
// localhost ([CheckURL]) where it carries none.
package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/sdk/trace"
)

const defaultTimeout = 10 * time.Second

// Options tune a [Client].
type Options struct {
	// RootFile holds the roots (PEM) that the server is verified with. It is read for
	// each request, as it may be replaced. Default: the system's.
	RootFile string
	// CertFile and KeyFile are a client certificate for a server that asks for one (see
	// [ReadPair]), read for each connection. Default: none.
	CertFile, KeyFile string
	// TLS returns the TLS settings instead, for a server that is verified otherwise.
	// Default: none.
	TLS func() *tls.Config
	// Transport asks instead, with TLS settings of its own; [Client.Close] leaves it as
	// it is. Default: none.
	Transport http.RoundTripper
	// Proxy selects the proxy to the server. Default: none, as the environment is for main to
	// read.
	Proxy func(*http.Request) (*url.URL, error)
	// Redirects selects which are followed. Default: [FollowGET].
	Redirects Redirects
	// MaxBody is the number of bytes of a reply that is taken. Default: 1 MiB.
	MaxBody int64
	// StatusOnly leaves the body of a reply unread: one that is long or slow costs its connection.
	// Default: false.
	StatusOnly bool
	// Timeout ends a request. Default: 10 seconds.
	Timeout time.Duration
	// KeepAlive keeps connections for the next request; [Client.Close] ends them.
	// Default: a connection for each request.
	KeepAlive bool
}

// Client asks servers. It is safe for concurrent use.
type Client struct {
	Options
	sharedTransport
}

// New returns a client. Nothing is read or asked yet.
func New(opts Options) *Client {
	opts.MaxBody = cmp.Or(opts.MaxBody, 1<<20)
	opts.Timeout = cmp.Or(opts.Timeout, defaultTimeout)
	return &Client{Options: opts}
}

// Reply is what a server answered, read whole.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// ErrTooLong is a reply that has more bytes than are taken.
var ErrTooLong = errors.New("the reply is too long")

// Do sends a request with an optional body and returns the reply, whatever its
// status is. A request that ran out of time, or whose caller went away, ends with
// [context.DeadlineExceeded] or [context.Canceled]. Any other error may quote the
// server, as its certificate, and what a server quotes of the request: the caller removes
// its credentials.
func (c *Client) Do(ctx context.Context, method, address string, header http.Header, body []byte) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	reply, err := c.ask(ctx, method, address, header, body)
	if ended := ctx.Err(); ended != nil {
		// What came while the connection was being closed may be half an answer that
		// ends well.
		return Reply{}, ended
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // its URL may be one that the server has redirected to
	}
	return reply, err
}

func (c *Client) ask(ctx context.Context, method, address string, header http.Header, body []byte) (Reply, error) {
	resp, err := c.Open(ctx, method, address, header, body)
	if err != nil {
		return Reply{}, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	return c.read(resp)
}

// Open sends a request as [Client.Do] does and returns the reply with its body unread, such as a
// stream. Only ctx ends it, and nothing bounds the body. The caller closes the body.
func (c *Client) Open(ctx context.Context, method, address string, header http.Header, body []byte) (*http.Response, error) {
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	if parent := trace.Parent(ctx); parent != "" {
		req.Header.Set(trace.Header, parent)
	}
	return c.send(transport, req)
}

func (c *Client) read(resp *http.Response) (Reply, error) {
	if c.StatusOnly {
		return Reply{Status: resp.StatusCode, Header: resp.Header}, nil
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxBody+1))
	switch {
	case err != nil:
		return Reply{}, fmt.Errorf("read the reply: %w", err)
	case int64(len(content)) > c.MaxBody:
		return Reply{}, fmt.Errorf("%w: it has more than %d bytes", ErrTooLong, c.MaxBody)
	}
	return Reply{resp.StatusCode, resp.Header, content}, nil
}
