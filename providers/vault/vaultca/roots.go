package vaultca

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
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
	issuers, err := c.issuers(ctx)
	if err != nil {
		return nil, err
	}
	roots, err := chain.Roots(issuers)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "the mount %s has no self-signed issuer: import its root there, or set bundle_file: %w", c.settings.mount(), err)
	}
	return roots, nil
}

// issuers returns the certificates of all issuers of the mount with their chains, in PEM and
// each once. Before Vault 1.11 a mount has one issuer, at another path.
func (c *CA) issuers(ctx context.Context) ([]byte, error) {
	ids, err := c.issuerIDs(ctx)
	if err != nil {
		return nil, err
	}
	if ids == nil {
		texts, err := c.issuer(ctx, c.at("cert/ca_chain"))
		return []byte(strings.Join(texts, "\n")), err
	}
	var all []string
	for _, id := range ids {
		texts, err := c.issuer(ctx, c.at("issuer/"+id+"/json"))
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			if !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return []byte(strings.Join(all, "\n")), nil
}

// at returns a path of the mount.
func (c *CA) at(path string) string { return "/v1/" + c.settings.mount() + "/" + path }

// issuerIDs returns nil if the server has no issuers, or does not list them.
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

func (c *CA) issuer(ctx context.Context, path string) (texts []string, err error) {
	var reply struct {
		Data struct {
			Certificate string   `json:"certificate"`
			Chain       []string `json:"ca_chain"`
		} `json:"data"`
	}
	if err := c.call(ctx, rest.Call{Path: path}, "", &reply); err != nil {
		return nil, err
	}
	for _, text := range append([]string{reply.Data.Certificate}, reply.Data.Chain...) {
		if err := sound(text); err != nil {
			return nil, ca.Errorf(ca.Internal, "%s returned an invalid issuer from %s: %w", c.client.Host(), path, err)
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return texts, nil
}

// sound fails unless a text is PEM of which each block can be read.
func sound(text string) error {
	err := errors.New("it holds no PEM block")
	for _, err = range pki.Blocks([]byte(text)) {
		if err != nil {
			break
		}
	}
	return err
}
