package main

import (
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/control-plane/cmd/countersign-ra/config"
	"github.com/countersign-dev/countersign/control-plane/cmd/internal/daemon"
	agent "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/wiring"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// rotation is that of the certificate: half of its life, give or take a tenth.
var rotation = agent.Rotation{Ratio: 0.5, Jitter: 0.1}

// ownCertificate is the door's own: from files, or signed by an authority and renewed as the
// agent renews its own.
type ownCertificate struct {
	secret.Source
	status func() []secret.Status
	kick   func(authority string) // retries what failed because of it
	close  func() error
}

func openCertificate(c config.IstioCertificate, providers *daemon.Providers, log *slog.Logger) (*ownCertificate, error) {
	if c.InFiles() {
		return fileCertificate(c, log)
	}
	spec, err := wiring.Spec(c.Secret(), rotation)
	if err != nil {
		return nil, err
	}
	m, err := secret.New(secret.Config{Secrets: []secret.Spec{spec}, Authorities: providers.Authorities, Log: log})
	if err != nil {
		return nil, err
	}
	return &ownCertificate{Source: m, status: m.Status, kick: m.Kick, close: m.Close}, nil
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

// held is the state of the certificate. It has no key.
type held struct {
	// Fingerprint and the times are zero while there is none; one that has expired is shown.
	Fingerprint string    `json:"fingerprint,omitempty"`
	NotAfter    time.Time `json:"not_after,omitzero"`
	RenewAt     time.Time `json:"renew_at,omitzero"`
	// Error says why the last attempt failed; empty after a success.
	Error  string    `json:"error,omitempty"`
	Failed time.Time `json:"failed,omitzero"`
}

func (o *ownCertificate) report() (r held) {
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
