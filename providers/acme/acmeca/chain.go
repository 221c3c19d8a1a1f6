package acmeca

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// download returns the certificate's chain: the first that the server offers, or the first
// that leads to a configured root.
func (o *order) download(ctx context.Context) (string, error) {
	got, err := o.ca.server.post(ctx, o.as, o.at.Certificate, nil)
	if err != nil {
		return "", err
	}
	chain := string(got.body)
	if !strings.Contains(chain, "-----BEGIN CERTIFICATE-----") { // a proxy's page, as in [reply.into]
		return "", ca.Errorf(ca.Unavailable, "%s answered with no certificate", o.ca.server.url.Host)
	}
	certs, err := o.checked(chain)
	if err != nil {
		return "", err
	}
	if _, err := o.ca.anchor(certs); err == nil {
		o.ca.remember(o.asked.names, certs[0])
		return chain, nil
	}
	for _, url := range alternates(got.header) {
		other, err := o.ca.server.post(ctx, o.as, url, nil)
		if err != nil {
			return "", err
		}
		certs, err := o.checked(string(other.body))
		if err != nil {
			return "", err
		}
		if _, err := o.ca.anchor(certs); err == nil {
			chain = string(other.body)
			break
		}
	}
	o.ca.remember(o.asked.names, certs[0])
	return chain, nil
}

// checked parses a chain, and refuses one of another key or other names.
func (o *order) checked(chain string) ([]*x509.Certificate, error) {
	certs, err := parsed(chain)
	if err == nil {
		got, wrong := pki.IdentityOf(certs[0])
		if wrong == nil && got.Equal(o.asked.names) && pki.SameKey(certs[0].PublicKey, o.asked.key) {
			return certs, nil
		}
		err = ca.Errorf(ca.Internal, "%s issued a certificate of other names, or another key, than asked for", o.ca.server.url.Host)
	}
	if lie, ok := errors.AsType[*ca.Error](err); ok {
		lie.RetryAfter = afterLie
	}
	return nil, err
}

var link = regexp.MustCompile(`<([^<>]*)>\s*;\s*rel="?alternate"?`)

// alternates returns the URLs of further chains (RFC 8555, section 7.4.2).
func alternates(header http.Header) (urls []string) {
	all := link.FindAllStringSubmatch(strings.Join(header.Values("Link"), ","), maxAlternates)
	for _, one := range all {
		urls = append(urls, one[1])
	}
	return urls
}
