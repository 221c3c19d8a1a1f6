package acmeca

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// The time between two queries of one certificate: the server's Retry-After, within these.
const (
	minAsk         = time.Minute
	maxAsk         = 24 * time.Hour
	maxExplanation = 2048
)

// advised is the server's renewal information (RFC 9773, section 4.2).
type advised struct {
	Window struct {
		Start time.Time `json:"start"`
		End   time.Time `json:"end"`
	} `json:"suggestedWindow"`
	Explanation string `json:"explanationURL"`
}

// RenewalInfo implements [ca.RenewalAdvisor]. It needs no account. A server without renewal
// information is [ca.Unimplemented].
func (c *CA) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	certs, err := pki.ParseCertificates(leaf)
	if err != nil || len(certs) != 1 {
		return ca.RenewalInfo{}, ca.Errorf(ca.Invalid, "not a certificate")
	}
	id, err := certID(certs[0])
	if err != nil {
		return ca.RenewalInfo{}, ca.Errorf(ca.Invalid, "the certificate: %w", err)
	}
	dir, err := c.server.directory(ctx)
	if err != nil {
		return ca.RenewalInfo{}, err
	}
	if dir.RenewalInfo == "" {
		return ca.RenewalInfo{}, ca.Errorf(ca.Unimplemented, "the CA has no renewal information")
	}
	to, err := c.server.at(strings.TrimSuffix(dir.RenewalInfo, "/") + "/" + id)
	if err != nil {
		return ca.RenewalInfo{}, err
	}
	got, err := c.server.send(ctx, http.MethodGet, to, nil, nil)
	if err != nil {
		return ca.RenewalInfo{}, err
	}
	var said advised
	if err := got.into(c.server.url.Host, &said); err != nil {
		return ca.RenewalInfo{}, err
	}
	return said.info(got.header)
}

// info returns the advice, if it is sound.
func (a advised) info(header http.Header) (ca.RenewalInfo, error) {
	if !a.Window.End.After(a.Window.Start) || a.Window.Start.IsZero() {
		return ca.RenewalInfo{}, ca.Errorf(ca.Internal, "invalid renewal window: ends before it starts")
	}
	info := ca.RenewalInfo{Start: a.Window.Start, End: a.Window.End}
	if word := rest.RetryAfter(header); word > 0 {
		info.RetryAfter = min(max(word, minAsk), maxAsk)
	}
	if len(a.Explanation) <= maxExplanation && (strings.HasPrefix(a.Explanation, "https://") || strings.HasPrefix(a.Explanation, "http://")) {
		info.Explanation = a.Explanation
	}
	return info, nil
}

// certID names a certificate (RFC 9773, section 4.1): its authority key identifier and its
// serial number, as DER has it.
func certID(cert *x509.Certificate) (string, error) {
	if len(cert.AuthorityKeyId) == 0 {
		return "", errors.New("it has no authority key identifier")
	}
	encoded, err := asn1.Marshal(cert.SerialNumber)
	if err != nil {
		return "", err
	}
	var serial asn1.RawValue
	if _, err := asn1.Unmarshal(encoded, &serial); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s.%s", base64.RawURLEncoding.EncodeToString(cert.AuthorityKeyId), base64.RawURLEncoding.EncodeToString(serial.Bytes)), nil
}

// last is the last certificate that was issued for some names.
type last struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires"`
}

// namesKey is the name of the record for some names.
func namesKey(names pki.Identity) string { return recordName(strings.Join(names.Names(), "\n"), nil) }

// predecessor returns the ID of the certificate that one for the same names replaces, or "".
func (c *CA) predecessor(names pki.Identity) string {
	kept, err := load[last](c.issued, namesKey(names))
	if err != nil || !c.now().Before(kept.Expires) {
		return ""
	}
	return kept.ID
}

// remember keeps the ID of a certificate for its successor's order. Without it, that order
// replaces nothing, which costs the CA's favour alone.
func (c *CA) remember(names pki.Identity, leaf *x509.Certificate) {
	id, err := certID(leaf)
	if err == nil {
		err = c.issued.tidy(c.now().Add(-maxLife))
	}
	if err == nil {
		err = store(c.issued, namesKey(names), last{id, leaf.NotAfter})
	}
	if err != nil {
		c.log.Debug("no predecessor is kept", "error", err)
	}
}

// maxLife is longer than public certificates live.
const maxLife = 400 * 24 * time.Hour
