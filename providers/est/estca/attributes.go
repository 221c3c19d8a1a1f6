package estca

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	maxAttributes = 64 << 10 // bytes
	maxDemands    = 100
)

// demands is what a server wants to find in a CSR (RFC 7030, section 4.5.2), as far as it
// concerns what an agent decides on.
type demands struct {
	keys      []keyKind // any of these
	challenge bool      // a challengePassword
}

// keyKind is a kind of key that the server takes.
type keyKind struct {
	name, keyType string // in words; as the agent's setting key_type has it, or empty
	fits          func(key any) bool
}

var (
	oidChallenge = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}
	oidRSA       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	oidEC        = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	curves       = map[string]keyKind{
		"1.2.840.10045.3.1.7": onCurve("P-256", "ecdsa-p256"),
		"1.3.132.0.34":        onCurve("P-384", "ecdsa-p384"),
		"1.3.132.0.35":        onCurve("P-521", ""),
	}
)

func onCurve(name, keyType string) keyKind {
	return keyKind{"an ECDSA key on " + name, keyType, func(key any) bool {
		public, ok := key.(*ecdsa.PublicKey)
		return ok && public.Params().Name == name
	}}
}

func ofRSA(bits int) keyKind {
	kind := keyKind{"an RSA key", "rsa-2048", func(key any) bool {
		public, ok := key.(*rsa.PublicKey)
		return ok && (bits == 0 || public.N.BitLen() == bits)
	}}
	if bits != 0 {
		kind.name, kind.keyType = fmt.Sprintf("an RSA key of %d bits", bits), fmt.Sprintf("rsa-%d", bits)
	}
	return kind
}

var anyEC = keyKind{"an ECDSA key", "ecdsa-p256", func(key any) bool { _, ok := key.(*ecdsa.PublicKey); return ok }}

// unmet returns what of the demands a CSR with the key does not meet, in words, or "".
func (d demands) unmet(key any) string {
	if d.challenge {
		return "it wants a challengePassword in the CSR, which binds it to a TLS connection: a key that never leaves the agent has none; turn that off at the server"
	}
	if len(d.keys) == 0 || slices.ContainsFunc(d.keys, func(k keyKind) bool { return k.fits(key) }) {
		return ""
	}
	return "it wants " + d.wanted()
}

// wanted names the kinds of keys.
func (d demands) wanted() string {
	var all []string
	for _, kind := range d.keys {
		text := kind.name
		if kind.keyType != "" {
			text += " (key_type: " + kind.keyType + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, " or ")
}

// explain adds to a refusal what the server demands of a CSR and this one lacks: servers
// say only that it is wrong.
func (c *CA) explain(ctx context.Context, csr *x509.CertificateRequest, refusal error) error {
	d, err := c.demands(ctx)
	if err != nil {
		c.log.Debug("cannot ask for csrattrs", "error", err)
		return refusal
	}
	if unmet := d.unmet(csr.PublicKey); unmet != "" {
		return ca.Errorf(ca.ReasonFor(refusal), "%w; by its %s, %s", refusal, csrattrs, unmet)
	}
	return refusal
}

// demands asks for csrattrs. A server without them demands nothing.
func (c *CA) demands(ctx context.Context) (demands, error) {
	reply, err := c.client.Send(ctx, rest.Call{Path: c.settings.path(csrattrs), Header: http.Header{"Accept": {"application/csrattrs"}}})
	switch {
	case ca.ReasonFor(err) == ca.Invalid, errors.Is(err, rest.ErrForeign): // 404
		return demands{}, nil
	case err != nil:
		return demands{}, err
	case reply.Status == http.StatusNoContent || len(reply.Body) == 0:
		return demands{}, nil
	}
	d, err := parseDemands(reply.Body)
	if err != nil {
		return demands{}, ca.Errorf(ca.Internal, "%s returned invalid %s: %w", c.client.Host(), csrattrs, err)
	}
	return d, nil
}

// parseDemands reads CsrAttrs, a SEQUENCE OF AttrOrOID in base64. Unknown ones are ignored.
func parseDemands(text []byte) (d demands, err error) {
	if len(text) > maxAttributes {
		return d, fmt.Errorf("they have %d bytes, more than %d", len(text), maxAttributes)
	}
	der, err := base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields(text), nil)))
	if err != nil {
		return d, errors.New("they are not base64")
	}
	var all []asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &all); err != nil || len(rest) > 0 || len(all) > maxDemands {
		return d, errors.New("not a sequence of attributes in DER")
	}
	for _, one := range all {
		if err := d.add(one); err != nil {
			return d, err
		}
	}
	return d, nil
}

// add reads one AttrOrOID.
func (d *demands) add(one asn1.RawValue) error {
	var oid asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(one.FullBytes, &oid); err == nil {
		d.demand(oid, nil)
		return nil
	}
	var attribute struct {
		Type   asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}
	if _, err := asn1.Unmarshal(one.FullBytes, &attribute); err != nil {
		return errors.New("one is neither an OID nor an attribute")
	}
	d.demand(attribute.Type, attribute.Values)
	return nil
}

func (d *demands) demand(oid asn1.ObjectIdentifier, values []asn1.RawValue) {
	kind, curve := curves[oid.String()]
	switch {
	case oid.Equal(oidChallenge):
		d.challenge = true
	case curve:
		d.keys = append(d.keys, kind)
	case oid.Equal(oidRSA):
		d.keys = append(d.keys, kindsOf(values, rsaOf, ofRSA(0))...)
	case oid.Equal(oidEC):
		d.keys = append(d.keys, kindsOf(values, curveOf, anyEC)...)
	}
}

// kindsOf reads the values of an attribute; without a known one it returns all.
func kindsOf(values []asn1.RawValue, read func([]byte) (keyKind, bool), all keyKind) (kinds []keyKind) {
	for _, value := range values {
		if kind, ok := read(value.FullBytes); ok {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return []keyKind{all}
	}
	return kinds
}

func rsaOf(der []byte) (keyKind, bool) {
	var bits int
	_, err := asn1.Unmarshal(der, &bits)
	return ofRSA(bits), err == nil && bits > 0
}

func curveOf(der []byte) (keyKind, bool) {
	var oid asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(der, &oid); err != nil {
		return keyKind{}, false
	}
	kind, ok := curves[oid.String()]
	return kind, ok
}
