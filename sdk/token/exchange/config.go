// Package exchange (experimental) is a client for OAuth 2.0 Token Exchange (RFC 8693) over HTTPS.
// [New] returns a [Client], a stateless ca.TokenExchanger. Put a token.Cache before it: every
// call makes a request over a new connection.
package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/token"
)

const defaultTimeout = 5 * time.Second

// Config is where tokens are exchanged and how the client authenticates.
type Config struct {
	// URL is the token endpoint (https). Required.
	URL string
	// AllowLoopbackHTTP permits an http URL with a loopback address. Default: false.
	AllowLoopbackHTTP bool
	// RootFile is a PEM file with the roots that verify the server, read for each
	// connection. Default: the system's roots.
	RootFile string
	// Auth is the client's own authentication. Default: none.
	Auth Auth
	// Actor is the source of the actor token; its type is ActorType. Default: none.
	Actor token.Source
	// ActorType is a URN of RFC 8693, section 3. Default: token.TypeJWT.
	ActorType string
	// Timeout limits a call. Default: 5 seconds.
	Timeout time.Duration
}

// Auth is a client's own authentication: by secret (RFC 6749, section 2.3.1) or by
// certificate (RFC 8705).
type Auth struct {
	// ClientID is required with a secret; with a certificate it is sent if set.
	ClientID string
	// SecretFile holds the client secret; it is read for each call.
	SecretFile string
	// SecretInBody selects client_secret_post. Default: client_secret_basic.
	SecretInBody bool
	// CertFile and KeyFile are PEM files, read for each connection.
	CertFile, KeyFile string
}

// New checks config and returns its Client. It makes no connection.
func New(config Config) (*Client, error) {
	target, err := checkURL(config.URL, config.AllowLoopbackHTTP)
	if err != nil {
		return nil, err
	}
	if err := config.Auth.check(); err != nil {
		return nil, err
	}
	if config.Timeout < 0 {
		return nil, fmt.Errorf("the timeout is %s; use more than 0", config.Timeout)
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	config.ActorType = cmp.Or(config.ActorType, token.TypeJWT)
	server := endpoint.New(endpoint.Options{
		RootFile: config.RootFile, CertFile: config.Auth.CertFile, KeyFile: config.Auth.KeyFile,
		Redirects: endpoint.FollowSame, MaxBody: maxReply, Timeout: config.Timeout,
	})
	return &Client{config: config, host: target.Host, server: server}, nil
}

func checkURL(text string, loopbackHTTP bool) (*url.URL, error) {
	target, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the URL does not parse; write https://HOST/PATH") // the parser's error quotes the URL, which may hold a password
	case target.User != nil:
		return nil, errors.New("the URL has a user; a client has its ID and a file with its secret instead")
	case target.Hostname() == "" || target.Fragment != "":
		return nil, fmt.Errorf("the URL is %.256q; write https://HOST/PATH", text)
	case target.Scheme == "https":
		return target, nil
	case target.Scheme == "http" && isLoopback(target.Hostname()) && loopbackHTTP:
		return target, nil
	case target.Scheme == "http" && isLoopback(target.Hostname()):
		return nil, fmt.Errorf("the URL is %.256q: plain HTTP is for loopback, where that is allowed explicitly", text)
	}
	return nil, fmt.Errorf("the URL is %.256q: a token is sent over https only", text)
}

// isLoopback reports whether host is a loopback address. A name is not enough, as it may
// resolve to anything.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (a Auth) check() error {
	switch {
	case (a.CertFile == "") != (a.KeyFile == ""):
		return errors.New("a client certificate needs both its file and its key's")
	case a.CertFile != "" && a.SecretFile != "":
		return errors.New("a client authenticates by a secret or by a certificate, not by both")
	case a.SecretFile != "" && a.ClientID == "":
		return errors.New("a client secret needs the client's ID")
	case a.SecretInBody && a.SecretFile == "":
		return errors.New("there is no client secret to send in the body")
	case a.ClientID != "" && a.SecretFile == "" && a.CertFile == "":
		return errors.New("a client ID needs a secret's file, or a certificate")
	}
	return nil
}
