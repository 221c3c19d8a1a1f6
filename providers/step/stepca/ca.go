package stepca

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	signPath  = "/1.0/sign"
	rekeyPath = "/1.0/rekey"
	rootsPath = "/1.0/roots"
)

// CA is a [ca.Client] and [ca.RootSource]. It has no goroutine of its own, keeps no
// connection between calls, and is safe for concurrent use.
type CA struct {
	settings Settings
	client   *rest.Client
	log      *slog.Logger
}

// Open checks the settings and the provisioner's key. If only the root's fingerprint is
// configured, Open fetches the root. An error has the reason [ca.Invalid] or
// [ca.Unavailable].
func Open(ctx context.Context, settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings.Log = cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	c := &CA{settings: settings, log: settings.Log}
	if settings.KeyFile != "" {
		if _, err := settings.key(); err != nil {
			return nil, ca.Errorf(ca.Invalid, "key_file: %w", err)
		}
	}
	config := rest.Config{URL: settings.URL, TLS: setting.TLS{RootFile: string(settings.RootFile)}, Failure: message, Own: own}
	var err error
	if settings.RootFingerprint != "" {
		if config.Roots, err = bootstrap(ctx, settings.URL, settings.fingerprint()); err != nil {
			return nil, err
		}
	}
	c.client, err = rest.New(config)
	return c, err
}

// message returns the text of a step-ca error.
func message(body []byte) string {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &said) // any other body has no message
	return said.Message
}

// own reports whether a body has the form of step-ca's errors, which repeat the status.
func own(status int, body []byte) bool {
	var said struct {
		Status int `json:"status"`
	}
	return json.Unmarshal(body, &said) == nil && said.Status == status
}

// signed is the reply to a CSR: the leaf and the certificates above it, in PEM.
type signed struct {
	Leaf  string   `json:"crt"`
	CA    string   `json:"ca"`
	Chain []string `json:"certChain"`
}

// CSRSign implements [ca.Client]. With a valid client certificate for the same names it
// asks by mutual TLS (POST /rekey). Without one, or if step-ca refuses, it asks with a
// one-time token (POST /sign). The reply has no roots; see [CA.Roots].
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err) // before a one-time token is spent
	}
	if c.held(csr) {
		chain, err := c.rekey(ctx, req)
		if !refused(err) {
			return ca.Certificate{Chain: chain}, err
		}
		c.log.Warn("renewal by client certificate refused, trying a token", "client_cert_file", c.settings.ClientCertFile, "error", err)
	}
	token, err := c.oneTimeToken(req, time.Now())
	if err != nil {
		return ca.Certificate{}, err
	}
	chain, err := c.ask(ctx, rest.Call{Path: signPath, Hide: []ca.Token{token}, Body: map[string]any{
		"csr": string(req.CSR), "ott": token.Reveal(), "notAfter": c.notAfter(req.TTL),
	}})
	return ca.Certificate{Chain: chain}, err
}

// notAfter returns a lifetime as step-ca reads it. Empty means step-ca's default.
func (c *CA) notAfter(ttl time.Duration) string {
	if ttl <= 0 {
		return ""
	}
	return min(ttl, cmp.Or(c.settings.MaxTTL, 24*time.Hour)).String()
}

// held reports whether there is a client certificate with the names of the request: rekey
// copies the names of the old certificate, whatever the CSR asks for.
func (c *CA) held(csr *x509.CertificateRequest) bool {
	pair := c.settings.pair()
	if !pair.IsSet() {
		return false
	}
	certificate, err := pair.Read()
	if err != nil {
		c.log.Debug("no usable client certificate", "error", err)
		return false
	}
	has, err := pki.IdentityOf(certificate.Leaf)
	if err != nil {
		return false
	}
	wanted, err := pki.IdentityOfCSR(csr)
	return err == nil && has.Equal(wanted)
}

func (c *CA) rekey(ctx context.Context, req ca.SignRequest) ([]byte, error) {
	return c.ask(ctx, rest.Call{Path: rekeyPath, Pair: c.settings.pair(), Body: map[string]any{"csr": string(req.CSR)}})
}

// refused reports whether step-ca refused to renew the certificate. Before 0.15 it had no /rekey.
func refused(err error) bool {
	return slices.ContainsFunc([]error{ca.ErrDenied, ca.ErrUnauthenticated, ca.ErrInvalid, rest.ErrForeign}, func(no error) bool { return errors.Is(err, no) })
}

// ask makes the call and returns the chain of the reply.
func (c *CA) ask(ctx context.Context, call rest.Call) ([]byte, error) {
	var reply signed
	if err := c.client.Do(ctx, call, &reply); err != nil {
		return nil, err
	}
	texts := reply.Chain
	if len(texts) == 0 { // as step-ca before 0.10 answered
		texts = []string{reply.Leaf, reply.CA}
	}
	return c.client.Chain(texts...)
}
