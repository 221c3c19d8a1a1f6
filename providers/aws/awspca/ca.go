// Package awspca is a client of AWS Private CA as a [ca.Client]. [Open] checks the settings and
// finds the credentials, [CA.CSRSign] orders a certificate and waits until it is issued, and
// [CA.WatchRoots] polls the CA's chain. [CA.ExchangeToken] exchanges a workload's token for
// temporary credentials. countersign-provider-aws serves it as a process; call Open to use it
// in another program.
//
// The package starts no goroutine and keeps no connection. What calls share, the orders in
// flight and what is known of the CA, is behind mutexes.
package awspca

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acmpca"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	// patience bounds a call whose caller set no deadline.
	patience = 30 * time.Second
	// callTimeout and maxReply bound each HTTP call.
	callTimeout = 10 * time.Second
	maxReply    = 1 << 20
)

// CA calls AWS Private CA. It is safe for concurrent use.
type CA struct {
	settings Settings
	arn      authorityARN
	http     *http.Client
	api      *acmpca.Client
	creds    *remembered // nil if each request brings its own
	orders   *orders
	known
}

// Open checks the settings and reads the files of the AWS configuration, if the credentials
// come from there. It sends nothing. An error has the reason [ca.Invalid], or
// [ca.Unavailable] if a file is missing, as it may come later.
func Open(ctx context.Context, settings Settings) (*CA, error) {
	tls := setting.TLS{RootFile: string(settings.RootFile)}
	return open(ctx, settings, &rest.Transport{NewTLS: tls.Config, MaxReply: maxReply, Timeout: callTimeout})
}

// open takes the transport of all calls.
func open(ctx context.Context, settings Settings, transport http.RoundTripper) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings = settings.withDefaults()
	settings.Log = cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	arn, _ := parseARN(settings.CAARN)
	c := &CA{
		settings: settings, arn: arn, orders: newOrders(), known: newKnown(),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	options := acmpca.Options{Region: arn.region, BaseEndpoint: optional(settings.Endpoint), HTTPClient: c.http, Retryer: aws.NopRetryer{}}
	if settings.Credentials != Token {
		var err error
		if c.creds, err = c.ownCredentials(ctx); err != nil {
			return nil, err
		}
		options.Credentials = c.creds
	}
	c.api = acmpca.New(options)
	return c, nil
}

func optional(u setting.URL) *string {
	if u.Host == "" {
		return nil
	}
	return aws.String(u.String())
}

// CSRSign implements [ca.Client]. A request that does not fit the settings fails with
// [ca.Invalid] before anything is sent. A retry of the same request goes on with the order of
// the first try; beside the wait for the certificate, nothing is retried: that is the host's
// to do.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	plan, err := c.settings.plan(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	as, err := c.caller(req.Token)
	if err != nil {
		return ca.Certificate{}, err
	}
	if c.settings.Credentials == Token {
		c.came(req.Token)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	cert, err := c.sign(ctx, req, plan, as)
	if err != nil {
		return ca.Certificate{}, c.failure(ctx, err, as)
	}
	return cert, nil
}

// caller is who makes the calls of one request.
type caller struct {
	option func(*acmpca.Options)
	hidden func() []ca.Token // removed from errors
}

// caller returns the credentials of the token, or those of the settings.
func (c *CA) caller(token ca.Token) (caller, error) {
	switch byToken := c.settings.Credentials == Token; {
	case !byToken && token != "":
		return caller{}, ca.Errorf(ca.Invalid, "the request has a token, but credentials is %q: set credentials to token, or remove the provider's token source", c.settings.Credentials)
	case !byToken:
		return caller{func(*acmpca.Options) {}, c.creds.secrets}, nil
	case token == "":
		return caller{}, ca.Errorf(ca.Unauthenticated, "credentials is %q, but the request has no token: set the provider's token source", Token)
	}
	session, err := sessionOf(token)
	if err != nil {
		return caller{}, err
	}
	hidden := append(secretsOf(session), token)
	return caller{func(o *acmpca.Options) { o.Credentials = fixed(session) }, func() []ca.Token { return hidden }}, nil
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// gone reports whether the caller of a request went away.
func gone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
