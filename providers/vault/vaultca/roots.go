package vaultca

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// maxIssuers bounds the issuers that are read of one mount.
const maxIssuers = 64

// Roots implements [ca.RootSource]. It returns, in PEM, the self-signed certificates among
// the engine's issuers and their chains, or those in the bundle file. The host asks at
// intervals, so that it notices a changed root. The server needs no token for that.
func (c *CA) Roots(ctx context.Context) ([]byte, error) {
	roots, err := c.roots(ctx)
	c.keepAlive(ctx)
	return roots, err
}

// keepAlive renews the token in a file when that is due: no login could replace it, and it
// may expire between two certificates.
func (c *CA) keepAlive(ctx context.Context) {
	if login := c.settings.Login; login.method() != Token || login.TokenFile == "" {
		return
	}
	if _, err := c.session(ctx, ""); err != nil {
		c.log.Warn("token renewal failed", "token_file", c.settings.Login.TokenFile, "error", err)
	}
}

func (c *CA) roots(ctx context.Context) ([]byte, error) {
	if c.settings.BundleFile != "" {
		bundle, err := c.settings.BundleFile.Bundle()
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "bundle_file: %w", err)
		}
		return bundle.PEM(), nil
	}
	certs, err := c.issuers(ctx)
	if err != nil {
		return nil, err
	}
	roots := slices.DeleteFunc(certs, func(cert *x509.Certificate) bool { return !rest.SelfSigned(cert) })
	if len(roots) == 0 {
		return nil, ca.Errorf(ca.Unavailable, "the mount %s has no self-signed issuer: import its root there, or set bundle_file", c.settings.mount())
	}
	return pki.NewBundle(roots...).PEM(), nil
}

// issuers returns the certificates of all issuers of the mount with their chains. Before
// Vault 1.11 a mount has one issuer, at another path.
func (c *CA) issuers(ctx context.Context) ([]*x509.Certificate, error) {
	ids, err := c.issuerIDs(ctx)
	if err != nil {
		return nil, err
	}
	if ids == nil {
		return c.issuer(ctx, c.at("cert/ca_chain"))
	}
	var all []*x509.Certificate
	for _, id := range ids {
		certs, err := c.issuer(ctx, c.at("issuer/"+id+"/json"))
		if err != nil {
			return nil, err
		}
		all = append(all, certs...)
	}
	return all, nil
}

// at returns a path of the mount.
func (c *CA) at(path string) string { return "/v1/" + c.settings.mount() + "/" + path }

// issuerIDs returns nil if the server knows no issuers, or shows them to nobody.
func (c *CA) issuerIDs(ctx context.Context) ([]string, error) {
	var list struct {
		Data struct {
			Keys []string `json:"keys"`
		} `json:"data"`
	}
	err := c.call(ctx, rest.Call{Path: c.at("issuers?list=true")}, "", &list)
	switch {
	case errors.Is(err, ca.ErrInvalid), errors.Is(err, ca.ErrDenied):
		return nil, nil
	case err != nil:
		return nil, err
	case len(list.Data.Keys) > maxIssuers:
		return nil, ca.Errorf(ca.Internal, "the mount %s has %d issuers, more than %d", c.settings.mount(), len(list.Data.Keys), maxIssuers)
	case slices.ContainsFunc(list.Data.Keys, func(id string) bool { return !segment.MatchString(id) }):
		return nil, ca.Errorf(ca.Internal, "the mount %s has an issuer with an invalid ID", c.settings.mount())
	}
	return append([]string{}, list.Data.Keys...), nil // not nil
}

func (c *CA) issuer(ctx context.Context, path string) ([]*x509.Certificate, error) {
	var reply struct {
		Data struct {
			Certificate string   `json:"certificate"`
			Chain       []string `json:"ca_chain"`
		} `json:"data"`
	}
	if err := c.call(ctx, rest.Call{Path: path}, "", &reply); err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for _, text := range append([]string{reply.Data.Certificate}, reply.Data.Chain...) {
		found, err := pki.ParseCertificates([]byte(text))
		if err != nil {
			return nil, ca.Errorf(ca.Internal, "%s returned an invalid issuer from %s: %w", c.client.Host(), path, err)
		}
		certs = append(certs, found...)
	}
	return certs, nil
}
