package conformance

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func rootChecks() []Check {
	told, read := []string{"ROOT-01"}, []string{"ROOT-01", "ROOT-02", "ROOT-03"}
	return []Check{
		{"ROOT-01", Roots, "It returns the roots.", "The host asks for them before it requests a certificate.", []string{"SET-06", "META-08"}, rootsAreTold},
		{"ROOT-02", Roots, "The roots are one or more PEM blocks CERTIFICATE, and nothing else.", "A set that cannot be parsed is rejected as a whole.", told, rootsArePEM},
		{"ROOT-03", Roots, "Each root is a self-signed CA certificate.", "Only such a certificate ends a chain.", []string{"ROOT-02"}, rootsAreRoots},
		{"ROOT-04", Roots, "Each root is valid now.", "An expired root verifies nothing, yet it is sent to every workload.", []string{"ROOT-02"}, rootsAreValid},
		{"ROOT-05", Roots, "No root is listed twice.", "The set is sent to every workload.", []string{"ROOT-02"}, rootsAreDistinct},
		{"ROOT-06", Roots, "Two calls return the same set.", "Each change is sent to every workload.", read, rootsAreStable},
		{"ROOT-07", Roots, "A signed chain leads to one of these roots.", "Peers verify with them.", []string{"ROOT-03", "SIGN-15"}, signedLeadsToRoots},
		{"ROOT-08", Roots, "The roots in a signing reply are among these.", "Both ways to get the roots must agree.", []string{"ROOT-03", "ROOT-07", "SIGN-14"}, replyRootsAreTold},
		{"ROOT-09", Roots, "Without settings it returns not configured.", "The host then sends the settings.", nil, rootsUnconfigured},
		{"ROOT-10", Roots, "64 concurrent calls are all answered.", "At startup the roots are requested from many places.", told, rootsAtOnce},
	}
}

func (s *Session) toldRoots(ctx context.Context) ([]byte, error) {
	return s.fetched(ctx, wire.RootSource, (*Instance).Roots)
}

// fetched makes a call of an ability on the shared instance.
func (s *Session) fetched(ctx context.Context, ability wire.Ability, call func(*Instance, context.Context) ([]byte, error)) ([]byte, error) {
	i, err := s.having(ctx, ability)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	return call(i, ctx)
}

func rootsAreTold(ctx context.Context, s *Session) error {
	_, err := s.toldRoots(ctx)
	return err
}

func (s *Session) rootCertificates(ctx context.Context) ([]*x509.Certificate, error) {
	text, err := s.toldRoots(ctx)
	if err != nil {
		return nil, err
	}
	return pki.ParseCertificates(text)
}

func rootsArePEM(ctx context.Context, s *Session) error {
	_, err := s.rootCertificates(ctx)
	return err
}

func (s *Session) toldBundle(ctx context.Context) (*pki.Bundle, error) {
	text, err := s.toldRoots(ctx)
	if err != nil {
		return nil, err
	}
	return pki.ParseBundle(text)
}

func rootsAreRoots(ctx context.Context, s *Session) error {
	_, err := s.toldBundle(ctx)
	return err
}

func rootsAreValid(ctx context.Context, s *Session) error {
	certs, err := s.rootCertificates(ctx)
	now := time.Now()
	for _, cert := range certs {
		if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
			return fmt.Errorf("%q is valid from %s to %s", cert.Subject, clock.Stamp(cert.NotBefore), clock.Stamp(cert.NotAfter))
		}
	}
	return err
}

func rootsAreDistinct(ctx context.Context, s *Session) error {
	certs, err := s.rootCertificates(ctx)
	if err == nil && pki.NewBundle(certs...).Len() != len(certs) {
		return fmt.Errorf("%d certificates, %d different ones", len(certs), pki.NewBundle(certs...).Len())
	}
	return err
}

func rootsAreStable(ctx context.Context, s *Session) error {
	first, err := s.toldBundle(ctx)
	if err != nil {
		return err
	}
	second, err := s.toldBundle(ctx)
	if err == nil && !first.Equal(second) {
		return fmt.Errorf("first %v, then %v", first.Fingerprints(), second.Fingerprints())
	}
	return err
}

func signedLeadsToRoots(ctx context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		roots, err := s.toldBundle(ctx)
		if err != nil {
			return err
		}
		return r.verify(roots)
	})
}

func replyRootsAreTold(ctx context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		told, err := s.toldBundle(ctx)
		if err != nil || len(r.cert.Roots) == 0 {
			return err
		}
		own, err := pki.ParseBundle(r.cert.Roots)
		for _, root := range own.Certificates() {
			if !told.Contains(root) {
				return fmt.Errorf("%s is not", pki.Fingerprint(root))
			}
		}
		return err
	})
}

// unconfigured calls an instance without settings.
func unconfigured(ctx context.Context, s *Session, ability wire.Ability) error {
	if _, err := s.having(ctx, ability); err != nil {
		return err
	}
	i, err := s.Fresh(ctx)
	if err != nil {
		return err
	}
	if err := asked(ctx, s, i, ability); !errors.Is(err, ca.ErrNotConfigured) {
		return fmt.Errorf("it answers %w", orNone(err))
	}
	return nil
}

func rootsUnconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, wire.RootSource)
}

func rootsAtOnce(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.RootSource)
	if err != nil {
		return err
	}
	return together(ctx, s.crowd, func() (sending, error) {
		return func(ctx context.Context) error { return asked(ctx, s, i, wire.RootSource) }, nil
	})
}
