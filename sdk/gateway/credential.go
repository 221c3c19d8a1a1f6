package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// tokenTimeout bounds fetching a token, which may involve a remote call.
const tokenTimeout = 30 * time.Second

// maxRootFile limits the file with the roots, in bytes.
const maxRootFile = 1 << 20

// credential authenticates one connection: exactly one of certificate and token.
type credential struct {
	kind   string // "certificate" or "token"
	config *tls.Config
	token  ca.Token
	until  time.Time // expiry; zero: unknown
}

// credential returns the current certificate, or the token if there is none.
func (c *Client) credential(ctx context.Context) (*credential, error) {
	pool, err := c.pool()
	if err != nil {
		return nil, err
	}
	made := &credential{config: c.verifying(pool)}
	item, err := c.cfg.Secrets.Peek(secret.Caller{}, c.cfg.Certificate)
	switch {
	case err == nil && !item.Expired(soon()):
		return made, made.show(item)
	case c.cfg.Token == nil:
		return nil, ca.Errorf(ca.Unavailable, "the certificate %q is not held, or has expired, and there is no token", c.cfg.Certificate)
	}
	return made, c.bear(ctx, made)
}

// soon is until when a credential must be valid: a stream ends with its credential, and
// the next stream would end at once.
func soon() time.Time { return time.Now().Add(time.Second) }

// show sets the certificate.
func (c *credential) show(item *secret.Item) error {
	chain, err := pki.ParseCertificates(item.Chain)
	if err != nil {
		return fmt.Errorf("the certificate %q: %w", item.Name, err)
	}
	key, err := item.PrivateKey()
	if err != nil {
		return err
	}
	shown := tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, cert := range chain {
		shown.Certificate = append(shown.Certificate, cert.Raw)
	}
	c.kind, c.until, c.config.Certificates = "certificate", item.NotAfter, []tls.Certificate{shown}
	return nil
}

// bear sets the token.
func (c *Client) bear(ctx context.Context, made *credential) error {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	bearer, err := c.cfg.Token(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the token for the discovery service: %w", err)
	case bearer.Token == "" || bearer.Expired(soon()):
		return ca.Errorf(ca.Unavailable, "the certificate %q is not held, and the token is empty or has expired", c.cfg.Certificate)
	}
	made.kind, made.token, made.until = "token", bearer.Token, bearer.Expiry
	return nil
}

// pool returns the current roots that verify the service.
func (c *Client) pool() (*x509.CertPool, error) {
	text, err := c.roots()
	if err != nil {
		return nil, err
	}
	certs, err := pki.ParseCertificates(text)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "the roots for the discovery service: %w", err)
	}
	return pki.NewBundle(certs...).Pool(), nil
}

func (c *Client) roots() ([]byte, error) {
	if c.cfg.RootFile != "" {
		return readRoots(c.cfg.RootFile)
	}
	item, err := c.cfg.Secrets.Peek(secret.Caller{}, c.cfg.Roots)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "the roots %q for the discovery service: %w", c.cfg.Roots, err)
	}
	return item.Roots, nil
}

func readRoots(name string) ([]byte, error) {
	text, err := safefile.Read(name, maxRootFile)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "the root file for the discovery service: %w", err)
	}
	return text, nil
}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (c *credential) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if c.token == "" {
		return nil, nil
	}
	// This check is in addition to RequireTransportSecurity, with which grpc refuses to start.
	info, _ := credentials.RequestInfoFromContext(ctx)
	if err := credentials.CheckSecurityLevel(info.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
		return nil, errors.New("the token goes over TLS alone")
	}
	return map[string]string{"authorization": "Bearer " + c.token.Reveal()}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (c *credential) RequireTransportSecurity() bool { return true }
