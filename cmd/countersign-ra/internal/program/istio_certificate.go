package program

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// ownRotation is that of the certificate: half of its life, give or take a tenth.
var ownRotation = agent.Rotation{Ratio: 0.5, Jitter: 0.1}

// ownCertificate is the door's own: from files, or signed by an authority and renewed as the
// agent renews its own.
type ownCertificate struct {
	secret.Source
	status func() []secret.Status
	kick   func(authority string) // retries what failed because of it
	close  func() error
}

// openCertificate gets the certificate from issuer, the door's engine: it chains to roots that the
// proxies already trust, and those stay published while it lives.
func openCertificate(c *config.Config, issuer ra.Issuer, log *slog.Logger) (*ownCertificate, error) {
	own := c.Istio.Certificate
	if own.InFiles() {
		return fileCertificate(own, log)
	}
	spec, err := wiring.Spec(own.Secret(), ownRotation)
	if err != nil {
		return nil, err
	}
	m, err := secret.New(secret.Config{
		Secrets:     []secret.Spec{spec},
		Authorities: []secret.Authority{{Name: own.Authority, Client: throughEngine{issuer, c.Itself()}, AcceptLongerTTL: new(true), Timeout: ownTimeout}}, // the engine has checked that
		Log:         log,
	})
	if err != nil {
		return nil, err
	}
	return &ownCertificate{Source: m, status: m.Status, kick: m.Kick, close: m.Close}, nil
}

// ownTimeout is how long the engine may keep the request in line before it is repeated, which costs
// it nothing.
const ownTimeout = 2 * time.Minute

// throughEngine is an engine as package secret sees a CA.
type throughEngine struct {
	issuer ra.Issuer
	itself ra.Subject
}

// CSRSign implements [ca.Client]. What the engine holds back, it answers from memory, and says
// nothing when that is over: so it is asked soon again, and not the later, the longer it holds.
func (e throughEngine) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	cert, err := ra.Certify(ctx, e.issuer, ra.Request{Door: config.IstioItself, Subject: e.itself, CSR: req.CSR, TTL: req.TTL})
	if failed, ok := errors.AsType[*ca.Error](err); ok && failed.Reason == ca.Unavailable {
		err = &ca.Error{Reason: ca.Unavailable, Message: failed.Message, Err: err}
	}
	if err != nil {
		return ca.Certificate{}, err
	}
	return ca.Certificate{Chain: cert.Chain, Roots: cert.Roots.PEM(), Signer: cert.Authority}, nil
}

func fileCertificate(c config.IstioCertificate, log *slog.Logger) (*ownCertificate, error) {
	files, err := filesecret.New(filesecret.Config{
		Secrets: []filesecret.Spec{{Name: agent.DefaultSecret, Chain: c.ChainFile, Key: c.KeyFile}}, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &ownCertificate{Source: files, status: files.Status, kick: func(string) {}, close: files.Close}, nil
}

// ready returns nil while there is a certificate that has not expired.
func (o *ownCertificate) ready() error {
	_, err := o.Peek(secret.Caller{}, agent.DefaultSecret)
	return err
}

func (o *ownCertificate) report() (r status.Certificate) {
	for _, s := range o.status() {
		if s.Name != agent.DefaultSecret {
			continue
		}
		if s.Item != nil {
			r.Fingerprint, r.NotAfter, r.RenewAt = s.Item.Fingerprint, s.Item.NotAfter, s.Item.RenewAt
		}
		if s.Failure != nil {
			r.Error, r.Failed = s.Failure.Text, s.Failure.At
		}
	}
	return r
}
