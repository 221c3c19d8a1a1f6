package rest

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"io"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
)

// ErrTooLong is the error of a [Transport] for a reply that exceeds MaxReply.
var ErrTooLong = endpoint.ErrTooLong

// Transport is an [http.RoundTripper] with the bounds of a [Client], for what a Client
// cannot do: a body that is not JSON, a server that is verified otherwise, a library that
// brings its own HTTP client. It asks the proxy of the environment, follows no redirect and
// keeps no connection. The reply is read whole before RoundTrip returns. It is safe for
// concurrent use, and must not be changed once used.
type Transport struct {
	// TLS are the settings of each connection. Default: TLS 1.2 or later, verified with
	// the roots of the operating system.
	TLS *tls.Config
	// NewTLS makes the settings of each connection instead, such as the method Config of
	// setting.TLS, which reads files.
	NewTLS func() (*tls.Config, error)
	// Timeout ends a request. Default: 20 seconds.
	Timeout time.Duration
	// MaxReply is the size limit of a reply's body, in bytes. Default: 2 MiB.
	MaxReply int64
}

// Client returns an HTTP client that uses the Transport and follows no redirect.
func (t *Transport) Client() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip implements [http.RoundTripper]. A request that ran out of time or was canceled
// ends with [context.DeadlineExceeded] or [context.Canceled]. Any other error may quote the
// server, and what the server repeats of the request: clean it with provider.CleanText.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }() // it was only read
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	server, err := t.server()
	if err != nil {
		return nil, err
	}
	reply, err := server.Do(req.Context(), req.Method, req.URL.String(), req.Header, body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: reply.Status, Header: reply.Header, Request: req,
		Body: io.NopCloser(bytes.NewReader(reply.Body)), ContentLength: int64(len(reply.Body)),
	}, nil
}

func (t *Transport) server() (*endpoint.Client, error) {
	settings := t.TLS
	if t.NewTLS != nil {
		var err error
		if settings, err = t.NewTLS(); err != nil {
			return nil, err
		}
	}
	if settings == nil {
		settings = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return endpoint.New(endpoint.Options{
		TLS:   settings.Clone,
		Proxy: http.ProxyFromEnvironment, Redirects: endpoint.ReplyRedirects,
		MaxBody: cmp.Or(t.MaxReply, maxReply), Timeout: cmp.Or(t.Timeout, defaultTimeout),
	}), nil
}

// RetryAfter returns the wait that a reply's Retry-After header asks for, in seconds or
// until a date (RFC 9110, section 10.2.3): 0 without one, at most a day.
func RetryAfter(header http.Header) time.Duration {
	return endpoint.RetryAfter(header.Get("Retry-After"), time.Now())
}
