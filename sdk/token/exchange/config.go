// Package exchange is a client of OAuth 2.0 Token Exchange (RFC 8693) over HTTPS:
// [New] returns a [Client], which is a ca.TokenExchanger. Put a token.Cache before
// it: each call of its own is a request over a new connection.
package exchange

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/token"
)

const defaultTimeout = 5 * time.Second

// Config says where tokens are exchanged, and as whom.
type Config struct {
	// URL is the token endpoint, https. Required.
	URL string
	// AllowLoopbackHTTP takes a URL that is http, of a loopback address. Default: false.
	AllowLoopbackHTTP bool
	// RootFile is a PEM file with the roots that the server is verified with, read for
	// each connection. Default: the system's.
	RootFile string
	// Auth is how this client makes itself known. Default: not at all.
	Auth Auth
	// Actor is the source of the actor's token, of the type ActorType. Default: none.
	Actor token.Source
	// ActorType has the default token.TypeJWT.
	ActorType string
	// Timeout ends a call. Default: 5 seconds.
	Timeout time.Duration
}

// Auth is a client's own authentication: by a secret (RFC 6749, section 2.3.1) or by
// a certificate (RFC 8705).
type Auth struct {
	// ClientID is needed with a secret, and sent with a certificate where it is set.
	ClientID string
	// SecretFile holds the secret; it is read for each call.
	SecretFile string
	// SecretInBody is client_secret_post. Default: client_secret_basic.
	SecretInBody bool
	// CertFile and KeyFile are PEM, read for each connection.
	CertFile, KeyFile string
}

// New checks the configuration. It makes no connection.
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
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.ActorType == "" {
		config.ActorType = token.TypeJWT
	}
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
		return nil, errors.New("the URL does not parse; write https://HOST/PATH") // the error has the URL, and a password in it
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

// isLoopback tells of an address, as a name may lead anywhere.
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
