package awspca

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acmpca"
	"github.com/aws/aws-sdk-go-v2/service/acmpca/types"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
)

const (
	// defaultTTL is requested where a request has no TTL: the service requires an end.
	defaultTTL = 24 * time.Hour
	// backdate is how far the clock of a peer may be behind. The service's own hour is more
	// than Kubernetes accepts.
	backdate = 2 * time.Minute
	// The waits for a certificate double from the first to the longest.
	firstPause, longestPause = 200 * time.Millisecond, 3 * time.Second
	// maxARN bounds what the service returns; it documents 200 characters.
	maxARN = 512
)

// sign orders a certificate, unless an earlier try did, and waits for it.
func (c *CA) sign(ctx context.Context, req ca.SignRequest, plan plan, as caller) (ca.Certificate, error) {
	key := keyOf(req)
	placed := c.orders.of(key, time.Now())
	if placed.arn == "" {
		var err error
		if placed.arn, err = c.issue(ctx, req, plan, placed.begun, as); err != nil {
			return ca.Certificate{}, err
		}
		c.orders.placed(key, placed)
		if err := pause(ctx, firstPause); err != nil {
			return ca.Certificate{}, err
		}
	}
	got, err := c.wait(ctx, placed.arn, as)
	if err != nil {
		if ca.ActionFor(c.failure(ctx, err, as)) == ca.EndAttempt {
			c.orders.drop(key) // it will never be issued
		}
		return ca.Certificate{}, err
	}
	return c.certificate(req, got)
}

// issue places the order and returns the ARN of the certificate.
func (c *CA) issue(ctx context.Context, req ca.SignRequest, plan plan, begun time.Time, as caller) (string, error) {
	issuer, err := c.issuer(ctx, as)
	if err != nil {
		return "", err
	}
	begin, end := issuer.lifetime(begun, cmp.Or(req.TTL, defaultTTL))
	reply, err := c.api.IssueCertificate(ctx, &acmpca.IssueCertificateInput{
		CertificateAuthorityArn: &c.arn.text, Csr: req.CSR, IdempotencyToken: aws.String(idempotencyToken(req.ID)),
		SigningAlgorithm: issuer.algorithm, TemplateArn: aws.String(c.arn.template(plan.template)), ApiPassthrough: plan.names,
		Validity: at(end), ValidityNotBefore: at(begin),
	}, as.option)
	if err != nil {
		return "", err
	}
	arn := aws.ToString(reply.CertificateArn)
	if !strings.HasPrefix(arn, c.arn.text+"/certificate/") || len(arn) > maxARN {
		return "", ca.Errorf(ca.Internal, "%s: the reply to IssueCertificate has no ARN of a certificate of this CA", c.arn.text)
	}
	return arn, nil
}

func at(when time.Time) *types.Validity {
	return &types.Validity{Type: types.ValidityPeriodTypeAbsolute, Value: aws.Int64(when.Unix())}
}

// wait asks for the certificate until it is issued or ctx ends.
func (c *CA) wait(ctx context.Context, arn string, as caller) (*acmpca.GetCertificateOutput, error) {
	for next := 2 * firstPause; ; next = min(2*next, longestPause) {
		got, err := c.api.GetCertificate(ctx, &acmpca.GetCertificateInput{CertificateArn: &arn, CertificateAuthorityArn: &c.arn.text}, as.option)
		if _, working := errors.AsType[*types.RequestInProgressException](err); !working {
			return got, err
		}
		if err := pause(ctx, next); err != nil {
			return nil, err
		}
	}
}

// pause waits for a half to one and a half times as long.
func pause(ctx context.Context, about time.Duration) error {
	select {
	case <-time.After(about/2 + rand.N(about)):
		return nil
	case <-ctx.Done():
		return ca.Errorf(ca.ReasonFor(ctx.Err()), "the certificate was ordered, but not issued in time; a retry goes on with the order")
	}
}

// certificate puts the reply in order. The host verifies it.
func (c *CA) certificate(req ca.SignRequest, got *acmpca.GetCertificateOutput) (ca.Certificate, error) {
	bags := [][]byte{[]byte(aws.ToString(got.Certificate))}
	if above := aws.ToString(got.CertificateChain); above != "" {
		bags = append(bags, []byte(above))
	}
	cert, err := chain.Certificate(req.CSR, bags...)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: the reply to GetCertificate: %w", c.arn.text, err)
	}
	if roots, _, err := pki.UsableBundle(cert.Roots); err == nil {
		c.met(roots)
	}
	return cert, nil
}
