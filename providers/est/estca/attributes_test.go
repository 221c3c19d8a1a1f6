package estca

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/asn1"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// example is that of RFC 7030, section 4.5.2: a challengePassword, an extension request, a key on
// P-384 and ecdsa-with-SHA384.
const example = "MEEGCSqGSIb3DQEJBzASBgcqhkjOPQIBMQcGBSuBBAAiMBYGCSqGSIb3DQEJDjEJ\nBgcrBgEBAQEWBggqhkjOPQQDAw=="

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values []any `asn1:"set"`
}

// attrsOf encodes CsrAttrs of OIDs and attributes.
func attrsOf(t *testing.T, all ...any) []byte {
	t.Helper()
	var body []byte
	for _, one := range all {
		if a, ok := one.(attribute); ok {
			var values []asn1.RawValue
			for _, value := range a.Values {
				der, err := asn1.Marshal(value)
				must(t, err)
				values = append(values, asn1.RawValue{FullBytes: der})
			}
			one = struct {
				Type   asn1.ObjectIdentifier
				Values []asn1.RawValue `asn1:"set"`
			}{a.Type, values}
		}
		der, err := asn1.Marshal(one)
		must(t, err)
		body = append(body, der...)
	}
	der, err := asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: body})
	must(t, err)
	return der
}

func TestDemandsOfAServer(t *testing.T) {
	p384 := asn1.ObjectIdentifier{1, 3, 132, 0, 34}
	small, err := pki.GenerateKey(pki.RSA2048)
	must(t, err)
	ec, err := pki.GenerateKey("")
	must(t, err)
	for want, attrs := range map[string][]byte{
		"":                  attrsOf(t),
		"challengePassword": attrsOf(t, oidChallenge),
		"an ECDSA key on P-384 (key_type: ecdsa-p384)":                          attrsOf(t, attribute{oidEC, []any{p384}}),
		"it wants an ECDSA key on P-384":                                        attrsOf(t, p384),
		"an RSA key of 3072 bits (key_type: rsa-3072) or an ECDSA key on P-521": attrsOf(t, attribute{oidRSA, []any{3072}}, asn1.ObjectIdentifier{1, 3, 132, 0, 35}),
	} {
		d, err := parseDemands([]byte(base64.StdEncoding.EncodeToString(attrs)))
		must(t, err)
		for _, key := range []any{small.Public(), ec.Public()} {
			if got := d.unmet(key); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	for attrs, takes := range map[string]func(any) bool{
		string(attrsOf(t, attribute{oidRSA, []any{2048}})):                          func(key any) bool { _, ok := key.(*rsa.PublicKey); return ok },
		string(attrsOf(t, oidRSA)):                                                  func(key any) bool { _, ok := key.(*rsa.PublicKey); return ok },
		string(attrsOf(t, attribute{oidEC, []any{asn1.ObjectIdentifier{1, 2, 3}}})): func(key any) bool { _, ok := key.(*ecdsa.PublicKey); return ok },
		string(attrsOf(t, oidRSA, oidEC)):                                           func(any) bool { return true },
		string(attrsOf(t, asn1.ObjectIdentifier{1, 2, 3})):                          func(any) bool { return true },
	} {
		d, err := parseDemands([]byte(base64.StdEncoding.EncodeToString([]byte(attrs))))
		must(t, err)
		for _, key := range []any{small.Public(), ec.Public()} {
			if got := d.unmet(key); (got == "") != takes(key) {
				t.Errorf("%T: %q", key, got)
			}
		}
	}
	d, err := parseDemands([]byte(example))
	if err != nil || !d.challenge || len(d.keys) != 1 || d.wanted() != "an ECDSA key on P-384 (key_type: ecdsa-p384)" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestMalformedDemandsAreRefused(t *testing.T) {
	many := make([]any, 101)
	for i := range many {
		many[i] = oidRSA
	}
	for name, text := range map[string]string{
		"no base64": "!", "no DER": "aGVsbG8=", "too many": base64.StdEncoding.EncodeToString(attrsOf(t, many...)), "too long": strings.Repeat("A", 65<<10),
		"an integer": base64.StdEncoding.EncodeToString(attrsOf(t, 1)), "trailing": base64.StdEncoding.EncodeToString(append(attrsOf(t), 5, 0)),
	} {
		if d, err := parseDemands([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func FuzzDemands(f *testing.F) {
	f.Add([]byte(example))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if d, err := parseDemands(text); err == nil {
			_ = d.unmet(nil)
		}
	})
}

func TestRefusalNamesWhatServerDemands(t *testing.T) {
	s := newServer(t)
	s.keys = func(key any) bool { _, ok := key.(*rsa.PublicKey); return ok }
	c := s.open(t, s.settings())
	req, _ := testkit.Request(t, web)
	req.Token = password
	_, err := c.CSRSign(t.Context(), req)
	testkit.Fails(t, err, password, ca.ErrInvalid, "bad CSR")
	s.set(func() { s.attrs = attrsOf(t, attribute{oidRSA, []any{2048}}) })
	_, err = c.CSRSign(t.Context(), req)
	testkit.Fails(t, err, password, ca.ErrInvalid, "bad CSR", "by its csrattrs, it wants an RSA key of 2048 bits (key_type: rsa-2048)")
	s.set(func() { s.attrs = []byte("x") })
	_, err = c.CSRSign(t.Context(), req)
	testkit.Fails(t, err, password, ca.ErrInvalid, "bad CSR")
}

func TestValidateOnline(t *testing.T) {
	s := newServer(t)
	if found := s.settings().ValidateOnline(t.Context()); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	for says, attrs := range map[string][]byte{"wants an RSA key (key_type: rsa-2048) by its csrattrs": attrsOf(t, oidRSA), "challengePassword": attrsOf(t, oidChallenge)} {
		s.set(func() { s.attrs = attrs })
		if found := s.settings().ValidateOnline(t.Context()); len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].Summary, says) {
			t.Errorf("%+v", found)
		}
	}
	for _, attrs := range []string{"x"} {
		s.set(func() { s.attrs = []byte(attrs) })
		if found := s.settings().ValidateOnline(t.Context()); len(found) != 1 || found[0].Warning || !strings.Contains(found[0].Summary, "invalid csrattrs") {
			t.Errorf("%+v", found)
		}
	}
	s.Close()
	if found := s.settings().ValidateOnline(t.Context()); len(found) != 1 || found[0].Warning || !strings.Contains(found[0].Summary, "cannot be reached") {
		t.Errorf("%+v", found)
	}
}
