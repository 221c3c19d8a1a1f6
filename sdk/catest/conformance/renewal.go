package conformance

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func renewalChecks() []Check {
	good, told := []string{"META-08", "SIGN-02", "SIGN-17"}, []string{"RENEW-01"}
	return []Check{
		{"RENEW-01", Renewal, "It returns the renewal window of a certificate that it issued.", "That is the purpose of the ability.", good, windowIsTold},
		{"RENEW-02", Renewal, "The window ends after it starts.", "The host draws the moment between the two.", told, windowHasTwoEnds},
		{"RENEW-03", Renewal, "The window of a new certificate ends in the future, and before the certificate does.", "Otherwise every new certificate is renewed at once, or too late.", []string{"RENEW-02"}, windowIsInLife},
		{"RENEW-04", Renewal, "The explanation is an http or https URL of at most 2,048 bytes, or absent.", "It is shown to people as a link.", told, explanationIsLink},
		{"RENEW-05", Renewal, "The time until the next question is 1 minute to 24 hours, or absent.", "Less is a flood of questions; more misses a revocation.", told, retryIsSensible},
		{"RENEW-06", Renewal, "It rejects a certificate that it did not issue as invalid.", "After any other error, the host asks again and again.", good, strangersLeafIsInvalid},
		{"RENEW-07", Renewal, "Without settings it returns not configured.", "The host then sends the settings.", nil, renewalUnconfigured},
	}
}

// renewalOf queries the renewal information of a certificate.
func (s *Session) renewalOf(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	i, err := s.having(ctx, wire.RenewalInfo)
	if err != nil {
		return ca.RenewalInfo{}, err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	return i.RenewalInfo(ctx, leaf)
}

// advised checks its advice on the leaf of the first reply.
func advised(ctx context.Context, s *Session, look func(leaf *x509.Certificate, info ca.RenewalInfo) error) error {
	return looking(s, func(r *reply) error {
		info, err := s.renewalOf(ctx, pki.EncodeCertificates(r.chain[:1]))
		if err != nil {
			return err
		}
		return look(r.leaf(), info)
	})
}

func windowIsTold(ctx context.Context, s *Session) error {
	return advised(ctx, s, func(*x509.Certificate, ca.RenewalInfo) error { return nil })
}

func windowHasTwoEnds(ctx context.Context, s *Session) error {
	return advised(ctx, s, func(_ *x509.Certificate, info ca.RenewalInfo) error {
		if info.Start.IsZero() || !info.End.After(info.Start) {
			return fmt.Errorf("it starts %s and ends %s", clock.Stamp(info.Start), clock.Stamp(info.End))
		}
		return nil
	})
}

func windowIsInLife(ctx context.Context, s *Session) error {
	return advised(ctx, s, func(leaf *x509.Certificate, info ca.RenewalInfo) error {
		if !info.End.After(time.Now()) || !info.End.Before(leaf.NotAfter) {
			return fmt.Errorf("it ends %s, the certificate %s", clock.Stamp(info.End), clock.Stamp(leaf.NotAfter))
		}
		return nil
	})
}

func explanationIsLink(ctx context.Context, s *Session) error {
	return advised(ctx, s, func(_ *x509.Certificate, info ca.RenewalInfo) error {
		link, err := url.Parse(info.Explanation)
		if info.Explanation != "" && (err != nil || link.Scheme != "https" && link.Scheme != "http" || link.Host == "" || len(info.Explanation) > 2048) {
			return fmt.Errorf("it is %.256q", info.Explanation)
		}
		return nil
	})
}

func retryIsSensible(ctx context.Context, s *Session) error {
	return advised(ctx, s, func(_ *x509.Certificate, info ca.RenewalInfo) error {
		if after := info.RetryAfter; after != 0 && (after < time.Minute || after > 24*time.Hour) {
			return fmt.Errorf("it is %s", after)
		}
		return nil
	})
}

// strangersLeaf is a certificate that signs itself.
func strangersLeaf() ([]byte, error) {
	key, err := newKey(pki.ECDSAP256)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: strangeName}, DNSNames: []string{strangeName},
		AuthorityKeyId: []byte(strangeName)[:20], NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := pki.ParseCertificate(der)
	return pki.EncodeCertificates([]*x509.Certificate{cert}), err
}

func strangersLeafIsInvalid(ctx context.Context, s *Session) error {
	leaf, err := strangersLeaf()
	if err != nil {
		return err
	}
	_, err = s.renewalOf(ctx, leaf)
	return mustBe(err, ca.Invalid)
}

func renewalUnconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, wire.RenewalInfo)
}
