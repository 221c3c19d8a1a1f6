package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// checkServer rejects settings that cannot identify the service's certificate.
func (c Config) checkServer() error {
	if c.ServerSPIFFEID == "" {
		return nil
	}
	if c.ServerName != "" {
		return errors.New("gateway: Config.ServerName and Config.ServerSPIFFEID are both set; the certificate is held against one of them")
	}
	if _, err := pki.ParseSPIFFEID(c.ServerSPIFFEID); err != nil {
		return fmt.Errorf("gateway: Config.ServerSPIFFEID: %w", err)
	}
	return nil
}

// verifying returns a TLS config that accepts only the service.
func (c *Client) verifying(roots *x509.CertPool) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: c.cfg.ServerName}
	if id := c.cfg.ServerSPIFFEID; id != "" {
		// crypto/tls would require a DNS name; verify below performs all the checks this disables.
		config.InsecureSkipVerify = true //nolint:gosec // see above
		config.VerifyConnection = func(state tls.ConnectionState) error { return verify(state.PeerCertificates, roots, id) }
	}
	return config
}

// verify checks a chain against roots and a SPIFFE ID (X509-SVID standard, section 5.2).
func verify(chain []*x509.Certificate, roots *x509.CertPool, id string) error {
	leaf := chain[0] // a TLS server always sends one
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: pki.NewBundle(chain[1:]...).Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return pki.Explain(err, leaf, chain[1:]...)
	}
	switch {
	case leaf.IsCA, leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return errors.New("the discovery service shows the certificate of a CA")
	case len(leaf.URIs) != 1:
		return fmt.Errorf("the discovery service's certificate names %d URIs, and has to name exactly one, %s", len(leaf.URIs), id)
	case leaf.URIs[0].String() != id:
		return fmt.Errorf("the discovery service is %.256q, and not %s", leaf.URIs[0], id)
	}
	return nil
}
