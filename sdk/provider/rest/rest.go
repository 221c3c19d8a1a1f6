// Package rest (for authors of providers) calls authorities that speak JSON over HTTPS. [New]
// returns a [Client] that verifies the server with roots from a file, presents a client
// certificate, bounds what it reads, follows no redirect, and maps failures to errors of package
// ca. Files are read for each call, so that a changed one needs no restart. [Client.Send] does
// the same for bodies that are not JSON, and [Transport] for a library that brings its own
// client.
//
// The package has no goroutine and keeps no connection between two calls.
package rest

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	defaultTimeout = 20 * time.Second
	maxReply       = 2 << 20 // bytes; the limit of a host for a chain and its roots
	jsonType       = "application/json"
)

// Config is the address of the authority and how both sides are verified.
type Config struct {
	// URL is the base URL of the authority, https or http. A setting accepts http only with the
	// tag schemes, see [setting.URL]. Required.
	URL setting.URL
	// AllowTokenOverPlaintext permits calls with credentials to an http URL, where anyone on the
	// network can read them: those in [Call.Hide], and the headers Authorization,
	// Proxy-Authorization and Cookie. Default: they fail.
	AllowTokenOverPlaintext bool
	// TLS configures how the server is verified, and the client certificate. Default: the roots
	// of the operating system, and no client certificate.
	TLS setting.TLS
	// Roots verify the server's certificate instead of those of TLS. Default: none.
	Roots *x509.CertPool
	// Timeout bounds a call. Default: 20 seconds.
	Timeout time.Duration
	// Failure returns the authority's message in the body of an error reply, or "". The
	// message is cleaned and cut before it is used. Default: no message.
	Failure func(body []byte) string
	// Own reports whether the body of an error reply has the authority's form. Without it a 4xx
	// that calls the request wrong is [ca.Unavailable], with [ErrForeign]: it may come from a
	// proxy whose upstream is not there yet. Default: it is a JSON object.
	Own func(status int, body []byte) bool
	// Reason overrides the reason of a reply, where ok is true. Default: [Reason] of the
	// status.
	Reason func(status int, body []byte) (reason ca.Reason, ok bool)
}

// Client calls an authority. It is safe for concurrent use and keeps no connection.
type Client struct{ config Config }

// Call is one request.
type Call struct {
	Method string      // default GET, or POST where there is a body
	Path   string      // appended to the URL; may have a query
	Header http.Header // additional headers
	Body   any         // sent as JSON, or as it is if it is a [Content]; nil: no body
	// Pair replaces the client certificate of [Config.TLS].
	Pair setting.KeyPair
	// Hide are the credentials in the call. They are removed from errors.
	Hide []ca.Token
}

// Content is a request's body that is not JSON.
type Content struct {
	Type string // the Content-Type
	Body []byte
}

// Reply is an authority's reply of at most 2 MiB, read whole.
type Reply struct {
	Status int // 2xx
	Header http.Header
	Body   []byte
}

// New checks the configuration without access to files or the network. The error has the
// reason [ca.Invalid].
func New(config Config) (*Client, error) {
	if err := config.URL.CheckSetting(`schemes:"https,http"`); err != nil {
		return nil, ca.Errorf(ca.Invalid, "the URL of %q: %w", config.URL.Host, err)
	}
	if err := config.TLS.CheckSetting(""); err != nil {
		return nil, ca.Errorf(ca.Invalid, "%w", err)
	}
	if config.URL.Scheme == "http" && (config.TLS != setting.TLS{} || config.Roots != nil) {
		return nil, ca.Errorf(ca.Invalid, "the URL of %q is http, which takes no roots, server name or client certificate: use https, or remove those", config.URL.Host)
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	if config.Own == nil {
		config.Own = isObject
	}
	return &Client{config}, nil
}

// Host returns the host and port of the URL, for messages.
func (c *Client) Host() string { return c.config.URL.Host }

// Do makes the call and decodes the JSON of a 2xx reply into out, unless that is nil. It
// ignores unknown fields. An error is an [*ca.Error]. For another status it has the status's
// [Reason] and Retry-After; without a reply it is [ca.Unavailable], [ca.Deadline] or
// [ca.Canceled].
func (c *Client) Do(ctx context.Context, call Call, out any) error {
	reply, err := c.Send(ctx, call)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(reply.Body, out); err != nil {
		// The cause may quote the reply, which may contain a token.
		if kind, _, _ := mime.ParseMediaType(reply.Header.Get("Content-Type")); kind == "text/html" {
			return ca.Errorf(ca.Internal, "%s answered %s with a web page, not JSON: check that the URL is the authority's and that no proxy answers for it", c.Host(), call.name())
		}
		return ca.Errorf(ca.Internal, "%s answered %s with invalid JSON", c.Host(), call.name())
	}
	return nil
}

// Send makes the call and returns a 2xx reply as it is. Errors are those of [Client.Do].
func (c *Client) Send(ctx context.Context, call Call) (Reply, error) {
	if err := c.checkPlaintext(call); err != nil {
		return Reply{}, err
	}
	body, err := call.body()
	if err != nil {
		return Reply{}, ca.Errorf(ca.Internal, "%s: encode the request: %w", c.Host(), err)
	}
	server, err := c.server(cmp.Or(call.Pair, c.config.TLS.Client()))
	if err != nil {
		return Reply{}, err
	}
	reply, err := server.Do(ctx, call.method(), c.config.URL.At(call.Path), call.header(), body)
	switch {
	case err != nil:
		return Reply{}, c.unanswered(err, call)
	case reply.Status/100 != 2:
		return Reply{}, c.failure(reply, call)
	}
	return Reply(reply), nil
}

// checkPlaintext refuses what an http URL may not get: credentials that anyone could read, and a
// client certificate, which would not be used.
func (c *Client) checkPlaintext(call Call) error {
	switch {
	case c.config.URL.Scheme != "http":
		return nil
	case call.Pair.IsSet():
		return ca.Errorf(ca.Invalid, "%s has a client certificate, which %s cannot ask for without TLS: use an https URL", call.name(), c.Host())
	case call.hasCredentials() && !c.config.AllowTokenOverPlaintext:
		return ca.Errorf(ca.Invalid, "the credentials of %s would be sent to %s in plaintext, which is refused: use an https URL", call.name(), c.Host())
	}
	return nil
}

func (call Call) hasCredentials() bool {
	for name := range call.Header {
		if slices.Contains([]string{"Authorization", "Proxy-Authorization", "Cookie"}, http.CanonicalHeaderKey(name)) {
			return true
		}
	}
	return slices.ContainsFunc(call.Hide, func(t ca.Token) bool { return t != "" })
}

// server returns an endpoint for one call, with the current content of the files. It
// follows no redirect: a request is for the configured authority alone.
func (c *Client) server(pair setting.KeyPair) (*endpoint.Client, error) {
	settings, err := c.settings(pair)
	if err != nil {
		return nil, err
	}
	return endpoint.New(endpoint.Options{
		TLS:   func() *tls.Config { return settings },
		Proxy: http.ProxyFromEnvironment, Redirects: endpoint.ReplyRedirects, MaxBody: maxReply, Timeout: c.config.Timeout,
	}), nil
}

func (c *Client) settings(pair setting.KeyPair) (*tls.Config, error) {
	settings, err := c.config.TLS.Config()
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "roots for %s: %w", c.Host(), err)
	}
	if c.config.Roots != nil {
		settings.RootCAs = c.config.Roots
	}
	if pair.IsSet() { // read now, so that an error names it
		certificate, err := pair.Read()
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "client certificate for %s: %w", c.Host(), err)
		}
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return settings, nil
}

func (call Call) body() ([]byte, error) {
	switch body := call.Body.(type) {
	case nil:
		return nil, nil
	case Content:
		return body.Body, nil
	}
	return json.Marshal(call.Body)
}

func (call Call) header() http.Header {
	header := http.Header{}
	header.Set("Accept", jsonType)
	switch body := call.Body.(type) {
	case nil:
	case Content:
		header.Set("Content-Type", body.Type)
	default:
		header.Set("Content-Type", jsonType)
	}
	maps.Copy(header, call.Header)
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
