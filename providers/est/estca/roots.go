package estca

import (
	"context"
	"net/http"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// Roots implements [ca.RootSource]. It returns, in PEM, the self-signed certificates of
// cacerts (RFC 7030, section 4.1), or those in the bundle file. The host asks at intervals, so
// that it notices a changed root.
func (c *CA) Roots(ctx context.Context) ([]byte, error) {
	if c.settings.BundleFile != "" {
		bundle, err := c.settings.BundleFile.Bundle()
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "bundle_file: %w", err)
		}
		return bundle.PEM(), nil
	}
	bag, err := c.authorities(ctx)
	if err != nil {
		return nil, err
	}
	return c.rootsIn(bag)
}

func (c *CA) rootsIn(bag []byte) ([]byte, error) {
	roots, err := chain.Roots(bag)
	if err != nil {
		return nil, ca.Errorf(ca.ReasonFor(err), "%s of %s: %w; set bundle_file if its root is elsewhere", cacerts, c.client.Host(), err)
	}
	return roots, nil
}

// examine fails if no certificate could be verified, so that none is issued in vain.
func (c *CA) examine(bag []byte) error {
	if c.settings.BundleFile == "" {
		_, err := c.rootsIn(bag)
		return err
	}
	if _, err := chain.Parse(bag); err != nil {
		return ca.Errorf(ca.ReasonFor(err), "%s of %s: %w", cacerts, c.client.Host(), err)
	}
	return nil
}

// authorities returns the bag of the CA's certificates, which needs no credentials.
func (c *CA) authorities(ctx context.Context) ([]byte, error) {
	reply, err := c.client.Send(ctx, rest.Call{Path: c.settings.path(cacerts), Header: http.Header{"Accept": {"application/pkcs7-mime"}}})
	if err == nil && reply.Status != http.StatusOK {
		err = ca.Errorf(ca.Unavailable, "%s answered %s with %d", c.client.Host(), cacerts, reply.Status)
	}
	return reply.Body, err
}
