package awspca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acmpca"
	"github.com/aws/aws-sdk-go-v2/service/acmpca/types"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
)

// Roots implements [ca.RootSource]. It returns the root that the CA's chain ends in, in PEM.
func (c *CA) Roots(ctx context.Context) ([]byte, error) {
	token, _ := c.asking()
	if c.waits(token) {
		return nil, ca.Errorf(ca.Unavailable, "%s: fetching the root needs the token of a request, and there was none yet", c.arn.text)
	}
	found, err := c.fetch(ctx, token)
	return found.roots.PEM(), err
}

// WatchRoots implements [ca.RootWatcher]. It reports the current root, and each change that it
// finds at the interval or when a reply chains to an unknown root. With the credentials
// [Token] it uses the token of the newest request, and waits for the first. It returns the
// first error.
func (c *CA) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	var told *pki.Bundle
	for ctx.Err() == nil {
		token, asked := c.asking()
		if c.waits(token) {
			until(ctx, asked, nil)
			continue
		}
		found, err := c.fetch(ctx, token)
		switch {
		case errors.Is(err, ca.ErrUnauthenticated) && token != "":
			c.settings.Log.Warn("the token of the last request is no longer accepted, waiting for the next to fetch the root", "ca_arn", c.arn.text)
			c.forget(token)
			continue
		case err != nil:
			return err
		case !found.roots.Equal(told):
			if err := changed(found.roots.PEM()); err != nil {
				return err
			}
			told = found.roots
		}
		interval := c.settings.RootsInterval - c.settings.RootsInterval/10
		until(ctx, asked, time.After(interval+rand.N(c.settings.RootsInterval/5)))
	}
	return ctx.Err()
}

func until(ctx context.Context, asked <-chan struct{}, over <-chan time.Time) {
	select {
	case <-asked:
	case <-over:
	case <-ctx.Done():
	}
}

// waits reports whether there is no token yet to ask with.
func (c *CA) waits(token ca.Token) bool { return token == "" && c.settings.Credentials == Token }

// fetch asks for the CA's certificate with the credentials of the token or the settings.
func (c *CA) fetch(ctx context.Context, token ca.Token) (issuer, error) {
	as, err := c.caller(token)
	if err != nil {
		return issuer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := c.ask(ctx, as)
	if err != nil {
		return issuer{}, c.failure(ctx, err, as)
	}
	return found, nil
}

// issuer is what a CA's own certificate and chain say.
type issuer struct {
	algorithm           types.SigningAlgorithm
	notBefore, notAfter time.Time
	roots               *pki.Bundle
	read                time.Time
}

// issuer returns what is known of the CA, and asks if that is missing or old.
func (c *CA) issuer(ctx context.Context, as caller) (issuer, error) {
	held, ok := c.held()
	if ok && time.Since(held.read) < 2*c.settings.RootsInterval {
		return held, nil
	}
	found, err := c.ask(ctx, as)
	if err != nil && ok && !gone(ctx) {
		return held, nil //nolint:nilerr // the order itself fails if the service is away
	}
	return found, err
}

func (c *CA) ask(ctx context.Context, as caller) (issuer, error) {
	reply, err := c.api.GetCertificateAuthorityCertificate(ctx, &acmpca.GetCertificateAuthorityCertificateInput{CertificateAuthorityArn: &c.arn.text}, as.option)
	if err != nil {
		return issuer{}, err
	}
	found, err := c.read(aws.ToString(reply.Certificate), aws.ToString(reply.CertificateChain))
	if err == nil {
		c.know(found)
	}
	return found, err
}

func (c *CA) read(own, above string) (issuer, error) {
	certs, err := pki.ParseCertificates([]byte(own))
	if err != nil {
		return issuer{}, ca.Errorf(ca.Internal, "%s: the CA's own certificate: %w", c.arn.text, err)
	}
	roots, err := chain.Roots([]byte(own + "\n" + above))
	if err != nil {
		return issuer{}, ca.Errorf(ca.Internal, "%s: the CA's chain: %w", c.arn.text, err)
	}
	bundle, _, err := pki.UsableBundle(roots)
	if err != nil {
		return issuer{}, ca.Errorf(ca.Internal, "%s: the CA's chain: %w", c.arn.text, err)
	}
	found := issuer{notBefore: certs[0].NotBefore, notAfter: certs[0].NotAfter, roots: bundle, read: time.Now()}
	if found.algorithm = types.SigningAlgorithm(c.settings.SigningAlgorithm); found.algorithm == "" {
		found.algorithm, err = algorithmOf(certs[0])
	}
	return found, err
}

// postQuantum are the service's algorithms for keys of ML-DSA, which this version of the SDK does
// not name yet.
var postQuantum = map[pki.KeyType]types.SigningAlgorithm{pki.MLDSA44: "ML_DSA_44", pki.MLDSA65: "ML_DSA_65", pki.MLDSA87: "ML_DSA_87"}

// algorithmOf returns the algorithm that the CA's key signs with: for RSA the strength that all
// peers have, for ECDSA the one that fits the curve, for ML-DSA the only one.
func algorithmOf(cert *x509.Certificate) (types.SigningAlgorithm, error) {
	if algorithm := postQuantum[pki.KeyTypeOf(cert.PublicKey)]; algorithm != "" {
		return algorithm, nil
	}
	switch key := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		return types.SigningAlgorithmSha256withrsa, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P384():
			return types.SigningAlgorithmSha384withecdsa, nil
		case elliptic.P521():
			return types.SigningAlgorithmSha512withecdsa, nil
		}
		return types.SigningAlgorithmSha256withecdsa, nil
	}
	return "", ca.Errorf(ca.Invalid, "the CA's key is neither RSA, ECDSA nor ML-DSA: set signing_algorithm")
}

// lifetime returns the whole seconds of a certificate that begins now, within the CA's own.
func (i issuer) lifetime(now time.Time, ttl time.Duration) (begin, end time.Time) {
	begin, end = now.Add(-backdate), now.Add(ttl+time.Second-1)
	if begin.Before(i.notBefore) {
		begin = i.notBefore
	}
	if end.After(i.notAfter) {
		end = i.notAfter
	}
	return begin.Truncate(time.Second), end.Truncate(time.Second)
}

// known is what signing and watching share. It is safe for concurrent use.
type known struct {
	mu     sync.Mutex
	by     *issuer
	newest ca.Token      // of the requests, with the credentials Token; in memory only
	waker  chan struct{} // closed and replaced when to ask now
}

func newKnown() known { return known{waker: make(chan struct{})} }

func (k *known) held() (issuer, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		return issuer{}, false
	}
	return *k.by, true
}

func (k *known) know(by issuer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by = &by
}

// asking returns the token to ask with, and a channel that is closed when to ask again.
func (k *known) asking() (ca.Token, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest, k.waker
}

// came keeps the token of a request, and wakes the watches if it is the first.
func (k *known) came(token ca.Token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.newest == "" {
		k.wake()
	}
	k.newest = token
}

// forget drops a token that was not accepted, unless there is a newer one.
func (k *known) forget(token ca.Token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.newest == token {
		k.newest = ""
	}
}

// met wakes the watches if a chain ended in an unknown root: peers have certificates under it,
// too, or soon will.
func (k *known) met(roots *pki.Bundle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, root := range roots.Certificates() {
		if k.by != nil && !k.by.roots.Contains(root) {
			k.wake()
			return
		}
	}
}

func (k *known) wake() {
	close(k.waker)
	k.waker = make(chan struct{})
}
