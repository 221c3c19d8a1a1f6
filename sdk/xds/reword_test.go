package xds

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Envoy compares a secret with the last one it was sent, loaded or not.
func TestTriedSecretIsNeverTheSameBytesTwice(t *testing.T) {
	inline := func(text string) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(text)}}
	}
	secret := &tlsv3.Secret{Name: "a", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline("-----BEGIN CERTIFICATE-----\n"), PrivateKey: inline("-----BEGIN PRIVATE KEY-----\n"),
	}}}
	body, err := anypb.New(secret)
	if err != nil {
		t.Fatal(err)
	}
	r := &Resource{Name: "a", Version: "1", Body: body}
	seen := []*anypb.Any{proto.CloneOf(body)}
	for n := range uint8(10) {
		next := reworded(r, n+1)
		for _, before := range seen {
			if proto.Equal(before, next.Body) {
				t.Fatalf("try %d repeats an earlier one", n+1)
			}
		}
		seen = append(seen, next.Body)
	}
	if !proto.Equal(r.Body, seen[0]) {
		t.Error("the shared body was modified")
	}
	var last tlsv3.Secret
	if err := seen[3].UnmarshalTo(&last); err != nil || len(last.GetTlsCertificate().GetCertificateChain().GetInlineBytes())+len(last.GetTlsCertificate().GetPrivateKey().GetInlineBytes()) != 28+28+3 {
		t.Errorf("more than one empty line for each try was added: %v", err)
	}
}

// Roots of a SPIFFE bundle are within the configuration of a validator.
func TestTextIsRewordedWhereverItIs(t *testing.T) {
	const text = "-----BEGIN CERTIFICATE-----\n"
	asString := &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: text}}
	asBytes := &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(text)}}
	validator, err := anypb.New(&tlsv3.SPIFFECertValidatorConfig{TrustDomains: []*tlsv3.SPIFFECertValidatorConfig_TrustDomain{{Name: "td", TrustBundle: asBytes}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, context := range map[string]*tlsv3.CertificateValidationContext{
		"a string":          {TrustedCa: asString},
		"a SPIFFE bundle":   {CustomValidatorConfig: &core.TypedExtensionConfig{Name: "v", TypedConfig: validator}},
		"a list of revoked": {Crl: asBytes},
	} {
		body, err := anypb.New(&tlsv3.Secret{Name: "a", Type: &tlsv3.Secret_ValidationContext{ValidationContext: context}})
		if err != nil {
			t.Fatal(err)
		}
		r := &Resource{Name: "a", Version: "1", Body: body}
		first, second := reworded(r, 1), reworded(r, 2)
		var sent tlsv3.Secret
		if err := second.Body.UnmarshalTo(&sent); err != nil || proto.Equal(first.Body, r.Body) || proto.Equal(first.Body, second.Body) {
			t.Errorf("%s is repeated: %v", name, err)
		}
		if more := len(second.Body.GetValue()) - len(first.Body.GetValue()); more != 1 {
			t.Errorf("%s grew by %d bytes, want 1", name, more)
		}
	}
}
