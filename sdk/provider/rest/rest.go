// Package rest is for providers whose authority speaks JSON over HTTPS. [New] returns a
// [Client] that verifies the server with roots from a file, presents a client certificate,
// bounds what it reads, follows no redirect, and maps failures to errors of package ca.
// Files are read for each call, so that a changed one needs no restart. [Transport] has the
// same bounds for everything that is not JSON.
//
// The package has no goroutine and keeps no connection between two calls.
package rest

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	defaultTimeout = 20 * time.Second
	maxReply       = 2 << 20 // bytes; the limit of a host for a chain and its roots
)

// Config says where the authority is and how both sides are verified.
type Config struct {
	// URL is the base URL of the authority: https://host[:port][/path]. Required.
	URL string
	// Roots verify the server's certificate. Default: the operating system's.
	Roots Roots
	// ServerName is the name that the server's certificate must have. Default: the host of
	// URL.
	ServerName string
	// Pair is the client certificate. Default: none.
	Pair Pair
	// Timeout bounds a call. Default: 20 seconds.
	Timeout time.Duration
	// Failure returns the authority's message in the body of an error reply, or "". The
	// message is cleaned and cut before it is used. Default: no message.
	Failure func(body []byte) string
	// Reason overrides the reason of a reply, where ok is true. Default: [Reason] of the
	// status.
	Reason func(status int, body []byte) (reason ca.Reason, ok bool)
}

// Client calls an authority. It is safe for concurrent use and keeps no connection.
type Client struct {
	config Config
	base   *url.URL
}

// Call is one request.
type Call struct {
	Method string      // default GET, or POST where there is a body
	Path   string      // appended to the URL; may have a query
	Header http.Header // additional headers
	Body   any         // sent as JSON; nil: no body
	// Pair replaces [Config.Pair].
	Pair Pair
	// Hide are the credentials in the call. They are removed from errors.
	Hide []ca.Token
}

// New checks the configuration without access to files or the network. The error has the
// reason [ca.Invalid] and does not name a setting: that is the caller's to add.
func New(config Config) (*Client, error) {
	base, err := ParseURL(config.URL)
	if err != nil {
		return nil, err
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	return &Client{config: config, base: base}, nil
}

// ParseURL parses the URL of an authority: https, with a host, without user and query. The
// error has the reason [ca.Invalid].
func ParseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, ca.Errorf(ca.Invalid, "%s is not a URL", quote(text)) // the cause would repeat it
	case parsed.User != nil:
		return nil, ca.Errorf(ca.Invalid, "the URL of %s has a user: use the settings for credentials", quote(parsed.Host))
	case parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		return nil, ca.Errorf(ca.Invalid, "%s is not https://host[:port][/path]", quote(text))
	}
	return parsed, nil
}

// Host returns the host and port of the URL, for messages.
func (c *Client) Host() string { return c.base.Host }

// Do makes the call and decodes the JSON of a 2xx reply into out, unless that is nil. It
// ignores unknown fields. An error is an [*ca.Error]. For another status it has the status's
// [Reason] and Retry-After; without a reply it is [ca.Unavailable], [ca.Deadline] or
// [ca.Canceled].
func (c *Client) Do(ctx context.Context, call Call, out any) error {
	body, err := call.body()
	if err != nil {
		return ca.Errorf(ca.Internal, "%s: encode the request: %w", c.Host(), err)
	}
	server, err := c.server(call.Pair.or(c.config.Pair))
	if err != nil {
		return err
	}
	reply, err := server.Do(ctx, call.method(), c.base.String()+call.Path, call.header(), body)
	switch {
	case err != nil:
		return c.unanswered(err, call)
	case reply.Status/100 != 2:
		return c.failure(reply, call)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(reply.Body, out); err != nil {
		// The cause may quote the reply, which may contain a token.
		return ca.Errorf(ca.Internal, "%s answered %s with invalid JSON", c.Host(), call.name())
	}
	return nil
}

// server returns an endpoint for one call, with the current content of the files. It
// follows no redirect: a request is for the configured authority alone.
func (c *Client) server(pair Pair) (*endpoint.Client, error) {
	settings, err := c.settings(pair)
	if err != nil {
		return nil, err
	}
	return endpoint.New(endpoint.Options{
		TLS:   func() *tls.Config { return settings },
		Proxy: http.ProxyFromEnvironment, Redirects: endpoint.ReplyRedirects, MaxBody: maxReply, Timeout: c.config.Timeout,
	}), nil
}

func (c *Client) settings(pair Pair) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.config.ServerName}
	if c.config.Roots != nil {
		roots, err := c.config.Roots()
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "roots for %s: %w", c.Host(), err)
		}
		settings.RootCAs = roots
	}
	if pair != (Pair{}) {
		certificate, err := pair.Read(time.Now())
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "client certificate for %s: %w", c.Host(), err)
		}
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return settings, nil
}

func (call Call) body() ([]byte, error) {
	if call.Body == nil {
		return nil, nil
	}
	return json.Marshal(call.Body)
}

func (call Call) header() http.Header {
	header := http.Header{}
	maps.Copy(header, call.Header)
	header.Set("Accept", "application/json")
	if call.Body != nil {
		header.Set("Content-Type", "application/json")
	}
	return header
}

func (call Call) method() string {
	switch {
	case call.Method != "":
		return call.Method
	case call.Body != nil:
		return http.MethodPost
	}
	return http.MethodGet
}

// name returns the call for messages, without its query, which may hold a credential.
func (call Call) name() string {
	path, _, _ := strings.Cut(call.Path, "?")
	return fmt.Sprintf("%s %s", call.method(), path)
}

func quote(foreign string) string { return `"` + text.Clean(foreign) + `"` }
