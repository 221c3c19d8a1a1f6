// Package rest is for providers whose authority speaks JSON over HTTPS: [New] makes a
// [Client] that verifies the server with roots from a file, shows a client
// certificate, bounds what it reads, follows no redirect, and turns what went wrong
// into an error of package ca. Files are read for each connection, so that a changed
// one needs no restart.
package rest

import (
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
	maxReply       = 2 << 20 // what a host takes of a chain and of roots together
)

// Config says where the authority is and how both ends are verified.
type Config struct {
	// URL is the authority's, https with a host, perhaps with a path. Required.
	URL string
	// Roots is what the server's certificate has to lead to. Default: those of the
	// operating system.
	Roots Roots
	// ServerName is what its certificate must name. Default: the host of URL.
	ServerName string
	// Pair is the client certificate. Default: none.
	Pair Pair
	// Timeout ends a call. Default: 20 seconds.
	Timeout time.Duration
	// Failure reads the authority's own words off the body of an answer that is an
	// error; it may return "". What it returns need not be bounded or escaped. Default:
	// nothing is read.
	Failure func(body []byte) string
	// Reason overrules what a status stands for (see [Reason]); ok is false where it
	// does not. Default: nothing is overruled.
	Reason func(status int, body []byte) (reason ca.Reason, ok bool)
}

// Client makes calls. It is safe for concurrent use and keeps no connection.
type Client struct {
	config Config
	base   *url.URL
}

// Call is one request.
type Call struct {
	Method string      // default GET, or POST where there is a body
	Path   string      // below the URL; it may have a query
	Header http.Header // further headers
	Body   any         // as JSON; nil: none
	// Pair is shown in the place of [Config.Pair].
	Pair Pair
	// Hide are credentials that travel in the call: no error has them.
	Hide []ca.Token
}

// New checks the configuration without looking at a file or the network. The error
// is of the reason [ca.Invalid] and does not name the setting, which the provider does.
func New(config Config) (*Client, error) {
	base, err := ParseURL(config.URL)
	if err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	return &Client{config: config, base: base}, nil
}

// ParseURL reads the URL of an authority: https, a host, no user, no query. The error
// is of the reason [ca.Invalid].
func ParseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, ca.Errorf(ca.Invalid, "%s is no URL", quote(text)) // the cause would repeat it
	case parsed.User != nil:
		return nil, ca.Errorf(ca.Invalid, "the URL of %s has a user: credentials have settings of their own", quote(parsed.Host))
	case parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		return nil, ca.Errorf(ca.Invalid, "%s is not https://host[:port][/path]", quote(text))
	}
	return parsed, nil
}

// Host is the authority's, for texts.
func (c *Client) Host() string { return c.base.Host }

// Do makes the call and decodes the answer's JSON into out, unless that is nil. Unknown
// fields are passed over. An error is an [*ca.Error]: by [Reason] where there was an
// answer, with its Retry-After.
func (c *Client) Do(ctx context.Context, call Call, out any) error {
	body, err := call.body()
	if err != nil {
		return ca.Errorf(ca.Internal, "%s cannot be asked: %w", c.Host(), err)
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
		// The cause may quote the answer, and that may have a token.
		return ca.Errorf(ca.Internal, "%s answered %s with something else than the JSON that was expected", c.Host(), call.name())
	}
	return nil
}

// server is for one call, so that what its files hold is what counts. A redirect is an
// answer: what is asked of an authority is for nobody else.
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
			return nil, ca.Errorf(ca.Unavailable, "the roots to verify %s with: %w", c.Host(), err)
		}
		settings.RootCAs = roots
	}
	if pair != (Pair{}) {
		certificate, err := pair.Read(time.Now())
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "the client certificate for %s: %w", c.Host(), err)
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

// name is the call without what its query may tell.
func (call Call) name() string {
	path, _, _ := strings.Cut(call.Path, "?")
	return fmt.Sprintf("%s %s", call.method(), path)
}

func quote(foreign string) string { return `"` + text.Clean(foreign) + `"` }
