package vaultca

import (
	"bytes"
	"context"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// Revocations implements [ca.RevocationSource]. It returns the revocation list of each issuer of
// the mount that has one, and the intermediate issuers. The server needs no token for that.
func (c *CA) Revocations(ctx context.Context) ([]byte, error) {
	issuers, err := c.issuers(ctx)
	if err != nil {
		return nil, err
	}
	certs, _, err := pki.UsableCertificates(issuers) // Roots passes on the others
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "the issuers of the mount %s: %w", c.settings.mount(), err)
	}
	lists, err := c.lists(ctx)
	if err != nil {
		return nil, err
	}
	if len(lists) == 0 {
		return nil, ca.Errorf(ca.Unavailable, "the mount %s has no revocation list: is it disabled in config/crl?", c.settings.mount())
	}
	between := slices.DeleteFunc(certs, pki.SelfSigned)
	return append(bytes.Join(lists, nil), pki.NewBundle(between...).PEM()...), nil
}

// lists returns the lists, each once: issuers with one key and name share theirs.
func (c *CA) lists(ctx context.Context) (all [][]byte, err error) {
	paths, err := c.listPaths(ctx)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		list, err := c.list(ctx, path)
		if err != nil {
			return nil, err
		}
		if list != nil && !slices.ContainsFunc(all, func(other []byte) bool { return bytes.Equal(other, list) }) {
			all = append(all, list)
		}
	}
	return all, nil
}

// listPaths are, before Vault 1.11, the one of its only issuer.
func (c *CA) listPaths(ctx context.Context) ([]string, error) {
	ids, err := c.issuerIDs(ctx)
	if err != nil || ids == nil {
		return []string{c.at("crl/pem")}, err
	}
	var paths []string
	for _, id := range ids {
		paths = append(paths, c.at("issuer/"+id+"/crl/pem"))
	}
	return paths, nil
}

// list returns nil if the issuer has none, as one without a key.
func (c *CA) list(ctx context.Context, path string) ([]byte, error) {
	reply, err := c.client.Send(ctx, c.prepared(rest.Call{Path: path}, ""))
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(reply.Body)) == 0 {
		return nil, nil
	}
	lists, _, err := pki.ParseCRLs(reply.Body)
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%s returned an invalid revocation list from %s: it %w", c.client.Host(), path, err)
	}
	return pki.EncodeCRLs(lists), nil
}
